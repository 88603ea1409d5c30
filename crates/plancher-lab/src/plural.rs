//! Numbers with their nouns.

use std::fmt::Display;

/// `1 block`, `2 blocks`.
#[must_use]
pub fn plural(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            [plural(0, "block"), plural(1, "block"), plural(2_u64, "block")],
            ["0 blocks", "1 block", "2 blocks"]
        );
        assert_eq!([plural(1.0, "sector"), plural(1.5, "sector")], ["1 sector", "1.5 sectors"]);
    }
}
