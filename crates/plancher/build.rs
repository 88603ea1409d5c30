//! Puts the lab's recorded evidence into the program, so that an installed one can show it; nothing, while there is none.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let evidence = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../evidence");
    let recorded = std::fs::read_to_string(evidence.join("h200-lab.json")).unwrap_or_default();
    // The folder, not the file: a file that is not there yet would be looked for at every build.
    if evidence.is_dir() {
        println!("cargo::rerun-if-changed={}", evidence.display());
    }
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("`OUT_DIR` is not set"))?;
    std::fs::write(Path::new(&out).join("lab-evidence.json"), recorded)
}
