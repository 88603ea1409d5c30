//! What the program was built from, for records: known when it was built, wherever it runs.

/// A state of the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Built<'a> {
    /// The commit; empty where the sources were no checkout.
    commit: &'a str,
    /// Whether they had changes, or nobody knows.
    is_changed: bool,
}

/// This program's.
pub(crate) const BUILT: Built<'static> = Built {
    commit: env!("PLANCHER_BUILT_COMMIT"),
    is_changed: !matches!(env!("PLANCHER_BUILT_CHANGED").as_bytes(), b"false"),
};

/// A commit's name is not shortened to fewer characters.
const SHORTEST: usize = 7;

impl Built<'_> {
    /// The commit to record, and whether it is recorded with changes: also where somebody names another one than that which the
    /// program was built from.
    pub(crate) fn recorded(&self, named: Option<&str>) -> (String, bool) {
        match named {
            None => (self.commit.to_owned(), self.is_changed),
            Some(named) if named.len() >= SHORTEST && self.commit.starts_with(named) => {
                (self.commit.to_owned(), self.is_changed)
            }
            Some(named) => (named.to_owned(), true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_commit_that_is_named_must_be_the_one_that_was_built() {
        let is = |commit: &str, is_changed| (commit.to_owned(), is_changed);
        let built = Built { commit: "0123456789abcdef", is_changed: false };
        assert_eq!(built.recorded(None), is("0123456789abcdef", false));
        assert_eq!(built.recorded(Some("0123456789abcdef")), is("0123456789abcdef", false));
        assert_eq!(built.recorded(Some("0123456")), is("0123456789abcdef", false));
        assert_eq!(built.recorded(Some("0123")), is("0123", true));
        assert_eq!(built.recorded(Some("fedcba9876543210")), is("fedcba9876543210", true));
        let changed = Built { is_changed: true, ..built };
        assert_eq!(changed.recorded(Some("0123456789abcdef")), is("0123456789abcdef", true));
        let unknown = Built { commit: "", is_changed: true };
        assert_eq!((unknown.recorded(None), unknown.recorded(Some("0123456"))), (is("", true), is("0123456", true)));
    }

    #[test]
    fn the_program_knows_its_commit() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // Sources without a repository are built too, and are of no commit.
        if !root.join(".git").exists() {
            assert_eq!(BUILT, Built { commit: "", is_changed: true });
            return;
        }
        let head = Command::new("git").arg("-C").arg(&root).args(["rev-parse", "HEAD"]).output();
        let Some(head) = head.ok().filter(|output| output.status.success()) else { return };
        assert_eq!(BUILT.commit, String::from_utf8_lossy(&head.stdout).trim());
    }
}
