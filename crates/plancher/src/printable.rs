//! Text from elsewhere as a terminal may have it: file names, evidence and compilers' messages may contain what moves the cursor,
//! rewrites what has been printed, or turns the order of letters round.

use std::borrow::Cow;

/// Whether a terminal would do something else with it than show it.
fn acts(character: char) -> bool {
    character.is_control() && character != '\n' && character != '\t'
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with such characters written out: `\u{1b}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let written = |character: char| -> String {
        if acts(character) { character.escape_default().collect() } else { character.into() }
    };
    Cow::Owned(text.chars().map(written).collect())
}

/// JSON with such characters written as JSON has them: `\u009b`. They can only be inside its strings.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.contains(acts) {
        return Cow::Borrowed(json);
    }
    let written = |character: char| -> String {
        if acts(character) { format!("\\u{:04x}", u32::from(character)) } else { character.into() }
    };
    Cow::Owned(json.chars().map(written).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out_and_nothing_else() {
        assert_eq!(printable("a\u{1b}[2J\u{9b}1m\rb\u{202e}c\u{7f}"), r"a\u{1b}[2J\u{9b}1m\rb\u{202e}c\u{7f}");
        let plain = "Größe\t95 % … ×\n\"x\\y\"";
        assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "a\u{85}": ["\u{1b}]0;x\u{7}", "\u{202e}\u{7f}ü"] });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = printable_json(&text);
        assert!(!shown.contains(acts) && text.contains('\u{85}'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
