//! Names of models that are not paths: presets and hub repositories.

use super::preset::{PRESETS, Preset};

/// What a name that is no path means.
#[derive(Clone, Debug)]
pub enum ModelName {
    /// A model this program knows.
    Preset(&'static Preset),
    /// A repository of the hub.
    Repository(RepositoryName),
}

/// `org/name[@revision][:file]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryName {
    /// The owner.
    pub owner: String,
    /// The repository's name.
    pub name: String,
    /// A branch, tag or commit; `main` unless given.
    pub revision: String,
    /// A GGUF file of the repository, or the quantisation in its name.
    pub file: Option<String>,
}

impl ModelName {
    /// Parses a name; nothing when it can be neither.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) {
            return Some(Self::Preset(preset));
        }
        let (rest, file) = match name.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (name, None),
        };
        let (repository, revision) = rest.split_once('@').unwrap_or((rest, "main"));
        let (owner, name) = repository.split_once('/')?;
        let plain = |part: &str| {
            let characters = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !part.is_empty() && part.len() <= 96 && part.chars().all(characters) && !part.contains("..") && part != "."
        };
        let path = |text: &str| text.split('/').all(plain);
        if !plain(owner) || !plain(name) || !path(revision) || !file.is_none_or(path) {
            return None;
        }
        Some(Self::Repository(RepositoryName {
            owner: owner.to_owned(),
            name: name.to_owned(),
            revision: revision.to_owned(),
            file: file.map(str::to_owned),
        }))
    }
}

impl RepositoryName {
    /// `org/name`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// Which of `files` is meant: a GGUF file by name, by quantisation, or the only one there is; the first file
    /// of a split one. Says what there is to choose from otherwise.
    pub(super) fn choose_gguf(&self, files: &[String]) -> Result<String, String> {
        let is_first = |file: &&String| !is_shard(file) || file.contains("-00001-of-");
        let gguf: Vec<&String> =
            files.iter().filter(|file| file.to_lowercase().ends_with(".gguf")).filter(is_first).collect();
        let list = || gguf.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(", ");
        let matching: Vec<&String> = match &self.file {
            None => gguf.clone(),
            Some(wanted) if gguf.contains(&wanted) => return Ok(wanted.clone()),
            Some(tag) => gguf.iter().copied().filter(|file| has_tag(file, tag)).collect(),
        };
        match (matching.as_slice(), &self.file) {
            ([only], _) => Ok((*only).clone()),
            (_, _) if gguf.is_empty() => Err("it has no GGUF file".to_owned()),
            ([], Some(tag)) => Err(format!("no GGUF file is called `{tag}` (there are: {})", list())),
            _ => Err(format!("it has several GGUF files: name one as `{}:FILE` (there are: {})", self.id(), list())),
        }
    }
}

/// Whether a file's name is that of a part of a split model.
pub(crate) fn is_shard(file: &str) -> bool {
    file.rsplit_once("-of-").is_some_and(|(head, tail)| {
        tail.len() == "00002.gguf".len() && head.len() > 5 && head[head.len() - 5..].bytes().all(|b| b.is_ascii_digit())
    })
}

/// Whether the file's name ends in the quantisation `tag`, apart from a shard number.
fn has_tag(file: &str, tag: &str) -> bool {
    let file = file.to_lowercase();
    let stem = file.strip_suffix(".gguf").unwrap_or(&file);
    let stem = stem.split_once("-00001-of-").map_or(stem, |(stem, _)| stem);
    stem.strip_suffix(&tag.to_lowercase()).is_some_and(|head| head.ends_with(['.', '-', '/']))
}

/// Every file of a split GGUF, given its first; the file itself otherwise.
pub(super) fn shards(first: &str, files: &[String]) -> Vec<String> {
    match first.split_once("-00001-of-") {
        Some((stem, total)) if is_shard(first) => {
            let of_it = |file: &&String| {
                file.strip_prefix(stem).is_some_and(|rest| rest.ends_with(&format!("-of-{total}")) && is_shard(file))
            };
            files.iter().filter(of_it).cloned().collect()
        }
        _ => vec![first.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(name: &str) -> Option<RepositoryName> {
        match ModelName::parse(name)? {
            ModelName::Repository(repository) => Some(repository),
            ModelName::Preset(_) => None,
        }
    }

    #[test]
    fn names_are_taken_apart() {
        assert!(matches!(ModelName::parse("smollm2-135m"), Some(ModelName::Preset(_))));
        let parsed = repository("org/na.me@refs/pr/1:sub/x.gguf").unwrap();
        assert_eq!((parsed.id().as_str(), parsed.revision.as_str()), ("org/na.me", "refs/pr/1"));
        assert_eq!(parsed.file.as_deref(), Some("sub/x.gguf"));
        assert_eq!(repository("a/b").unwrap().revision, "main");
    }

    #[test]
    fn names_that_could_leave_the_cache_are_none() {
        for name in
            ["", "model", "a/b/c", "../x", "a/..", "a/b@../..", "a/b:../../x.gguf", "/etc/passwd", "a/b c", "a/b@"]
        {
            assert!(ModelName::parse(name).is_none(), "{name}");
        }
    }

    #[test]
    fn gguf_files_are_chosen_by_name_or_quantisation() {
        let files: Vec<String> = [
            "README.md",
            "m-Q4_K_M.gguf",
            "m.Q4_0.gguf",
            "big-q8_0-00001-of-00002.gguf",
            "big-q8_0-00002-of-00002.gguf",
        ]
        .map(str::to_owned)
        .into();
        let choose = |name: &str| repository(name).unwrap().choose_gguf(&files);
        assert_eq!(choose("a/b:q4_k_m"), Ok("m-Q4_K_M.gguf".into()));
        assert_eq!(choose("a/b:m.Q4_0.gguf"), Ok("m.Q4_0.gguf".into()));
        assert_eq!(choose("a/b:Q8_0"), Ok("big-q8_0-00001-of-00002.gguf".into()));
        assert_eq!(shards("big-q8_0-00001-of-00002.gguf", &files), files[3..]);
        assert_eq!(shards("m.Q4_0.gguf", &files), ["m.Q4_0.gguf"]);
        insta::assert_snapshot!(choose("a/b:Q2_K").unwrap_err(), @"no GGUF file is called `Q2_K` (there are: `m-Q4_K_M.gguf`, `m.Q4_0.gguf`, `big-q8_0-00001-of-00002.gguf`)");
        insta::assert_snapshot!(choose("a/b").unwrap_err(), @"it has several GGUF files: name one as `a/b:FILE` (there are: `m-Q4_K_M.gguf`, `m.Q4_0.gguf`, `big-q8_0-00001-of-00002.gguf`)");
        insta::assert_snapshot!(repository("a/b").unwrap().choose_gguf(&files[..1]).unwrap_err(), @"it has no GGUF file");
    }
}
