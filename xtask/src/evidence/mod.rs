//! `cargo xtask evidence`: reads every record under `evidence/`, holds it to the rules, recomputes its figure from the
//! raw samples, and keeps README's tables equal to the result. No figure is ever typed by hand.

mod figure;
mod lab;
mod readme;
mod record;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use figure::Figure;
use record::Record;

/// What to do with the figures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Print them.
    Print,
    /// Print them and fail where README differs or a record breaks a rule.
    Check,
    /// Print them and rewrite README's tables.
    Write,
}

/// Recomputes every figure; prints one line each: `name value unit`, followed by `stale` or the rule it breaks.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<()> {
    let mut figures = Vec::new();
    let mut rejected = 0;
    let Evidence { records, runs } = read_all(&root.join("evidence"))?;
    let of_runs = runs.iter().flat_map(lab::Run::records);
    for (name, record) in records.into_iter().map(|record| (record.name.clone(), Ok(record))).chain(of_runs) {
        match record.and_then(|record| Figure::compute(&record, root)) {
            Ok(figure) => {
                println!("{figure}");
                figures.push(figure);
            }
            Err(error) => {
                rejected += 1;
                println!("{name} rejected: {error:#}");
            }
        }
    }
    for verdict in runs.iter().flat_map(lab::Run::verdicts) {
        println!("{verdict}");
    }
    let path = root.join("README.md");
    let text = std::fs::read_to_string(&path).context("`README.md`")?;
    let generated = readme::with_tables(&text, &figures)?;
    match mode {
        Mode::Write if generated != text => std::fs::write(&path, generated).context("`README.md`")?,
        Mode::Check if generated != text => {
            bail!("README.md shows figures that differ from the evidence: run `cargo xtask evidence --write`")
        }
        _ => {}
    }
    if rejected > 0 && mode != Mode::Print {
        bail!("{rejected} records break the rules of evidence");
    }
    Ok(())
}

/// What lies under `evidence/`.
struct Evidence {
    /// Ordered by name.
    records: Vec<Record>,
    /// Runs of the lab.
    runs: Vec<lab::Run>,
}

/// Everything under `directory`; a file holds one record, an array of them, or a run of the lab.
fn read_all(directory: &Path) -> Result<Evidence> {
    let (mut records, mut runs) = (Vec::new(), Vec::new());
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("`{}`", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if lab::is_run(&path) {
                runs.push(lab::Run::read(&path)?);
            } else if path.extension().is_some_and(|e| e == "json") {
                let text = std::fs::read_to_string(&path)?;
                let parsed: Vec<Record> = if text.trim_start().starts_with('[') {
                    serde_json::from_str(&text)
                } else {
                    serde_json::from_str(&text).map(|record| vec![record])
                }
                .with_context(|| format!("`{}`", path.display()))?;
                records.extend(parsed);
            }
        }
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = records.windows(2).find(|pair| pair[0].name == pair[1].name) {
        bail!("two records are named `{}`", pair[0].name);
    }
    Ok(Evidence { records, runs })
}
