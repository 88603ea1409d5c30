//! Puts into the program what it cannot know later: the lab's recorded evidence, so that an installed one can show it (nothing,
//! while there is none), and from which commit it is built, so that a record made elsewhere says so.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program is built from, below the repository's folder.
const SOURCES: [&str; 4] = ["crates", "Cargo.toml", "Cargo.lock", ".cargo"];

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let evidence = root.join("evidence");
    let recorded = std::fs::read_to_string(evidence.join("h200-lab.json")).unwrap_or_default();
    // The folder, not the file: a file that is not there yet would be looked for at every build.
    if evidence.is_dir() {
        println!("cargo::rerun-if-changed={}", evidence.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let (commit, is_changed) = built_from(&root).unwrap_or_else(|| (String::new(), true));
    println!("cargo::rustc-env=PLANCHER_BUILT_COMMIT={commit}");
    println!("cargo::rustc-env=PLANCHER_BUILT_CHANGED={is_changed}");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("`OUT_DIR` is not set"))?;
    std::fs::write(Path::new(&out).join("lab-evidence.json"), recorded)
}

/// The commit of the sources, and whether they have changes; `None` where this is no checkout.
fn built_from(root: &Path) -> Option<(String, bool)> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim_end_matches('\n').to_owned())
    };
    // Sources that were unpacked somewhere in another repository are not that one's.
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // Looked at again when a file of the sources changes, or the commit; only this package is compiled again then.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let places = ["HEAD".to_owned(), "logs/HEAD".to_owned(), "packed-refs".to_owned()].into_iter().chain(branch);
    let places = places.filter_map(|place| git(&["rev-parse", "--git-path", &place])).map(|place| root.join(place));
    for path in places.chain(SOURCES.map(|source| root.join(source))).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat())?;
    Some((commit, !changes.is_empty()))
}
