//! What compute-sanitizer's tools say of a version, together.

use crate::record::{LabRun, SanitizerRun, StepRun};
use crate::sanitizer::Tool;
use crate::{Dtype, plural};

/// The verdict of all tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sanitized<'a> {
    /// None was asked.
    NotAsked,
    /// All of them found nothing.
    Clean,
    /// This one, the first of them, found something.
    Errors(&'a SanitizerRun),
    /// What ran found nothing, but these did not run, or not to the end.
    Incomplete {
        /// Those that found nothing.
        clean: Vec<Tool>,
        /// Those that did not run, each with the reason.
        missing: Vec<(Tool, &'a str)>,
    },
}

/// Puts together what was recorded of a version in numbers of a type.
#[must_use]
pub fn sanitized<'a>(of: &'a StepRun, version: &str, dtype: Dtype) -> Sanitized<'a> {
    let runs: Vec<&SanitizerRun> =
        of.sanitizer.iter().filter(|run| (run.version.as_str(), run.dtype) == (version, dtype)).collect();
    if runs.is_empty() {
        return Sanitized::NotAsked;
    }
    // One report is enough, whatever the others did.
    if let Some(wrong) = runs.iter().find(|run| run.errors.is_some_and(|errors| errors > 0)) {
        return Sanitized::Errors(wrong);
    }
    let (mut clean, mut missing) = (Vec::new(), Vec::new());
    for tool in Tool::ALL {
        match runs.iter().find(|run| run.tool == tool) {
            Some(run) if run.errors == Some(0) => clean.push(tool),
            Some(run) => missing.push((tool, run.not_run.as_deref().unwrap_or_default())),
            None => missing.push((tool, "it was not asked")),
        }
    }
    if missing.is_empty() { Sanitized::Clean } else { Sanitized::Incomplete { clean, missing } }
}

/// What was found in all versions of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sanitizing {
    /// Versions, each in each of its types.
    pub versions: usize,
    /// Those in which all tools found nothing.
    pub clean: usize,
    /// Those of which none was asked.
    pub unasked: usize,
    /// Errors of all tools in all versions.
    pub errors: u64,
}

/// Counts what was found in a run.
#[must_use]
pub fn sanitizing(run: &LabRun) -> Sanitizing {
    let mut sum = Sanitizing::default();
    for of in &run.steps {
        let errors = of.sanitizer.iter().filter_map(|run| run.errors).fold(0, u64::saturating_add);
        sum.errors = sum.errors.saturating_add(errors);
        for version in &of.versions {
            sum.versions += 1;
            match sanitized(of, &version.version, version.dtype) {
                Sanitized::Clean => sum.clean += 1,
                Sanitized::NotAsked => sum.unasked += 1,
                Sanitized::Errors(_) | Sanitized::Incomplete { .. } => {}
            }
        }
    }
    sum
}

impl std::fmt::Display for Sanitized<'_> {
    /// `clean (4 tools)`, or what is not.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not asked"),
            Self::Clean => write!(f, "clean ({} tools)", Tool::ALL.len()),
            Self::Errors(run) => {
                let errors = plural(run.errors.unwrap_or_default(), "error");
                write!(f, "{errors} by {}: {}", run.tool, run.first.as_deref().unwrap_or("no report"))
            }
            Self::Incomplete { clean, missing } => {
                let missing: Vec<String> = missing.iter().map(|(tool, why)| format!("{tool} not run: {why}")).collect();
                write!(f, "clean in {} of {} tools; {}", clean.len(), Tool::ALL.len(), missing.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ranking::tests::step;
    use super::*;
    use crate::Shape;

    fn run(tool: Tool, errors: Option<u64>) -> SanitizerRun {
        SanitizerRun {
            version: "v".to_owned(),
            dtype: Dtype::F32,
            source_sha256: String::new(),
            tool,
            program: "compute-sanitizer 2025.3".to_owned(),
            shapes: vec![Shape::Vector(1)],
            errors,
            first: errors.filter(|&errors| errors > 0).map(|_| "Invalid read".to_owned()),
            not_run: errors.is_none().then(|| "it gave no summary".to_owned()),
        }
    }

    #[test]
    fn clean_is_only_what_every_tool_has_found_clean() {
        let said = |runs: Vec<SanitizerRun>| {
            let step = StepRun { sanitizer: runs, ..step(&[]) };
            sanitized(&step, "v", Dtype::F32).to_string()
        };
        let all = |errors: [Option<u64>; 4]| Tool::ALL.into_iter().zip(errors).map(|(tool, errors)| run(tool, errors));
        let clean = [Some(0); 4];
        assert_eq!(said(all(clean).collect()), "clean (4 tools)");
        assert_eq!(said(Vec::new()), "not asked");
        assert_eq!(said(vec![SanitizerRun { dtype: Dtype::Bf16, ..run(Tool::Memcheck, Some(0)) }]), "not asked");
        assert_eq!(said(all([Some(0), None, Some(3), Some(0)]).collect()), "3 errors by synccheck: Invalid read");
        assert_eq!(
            said(all([Some(0), Some(0), None, Some(0)]).take(3).collect()),
            "clean in 2 of 4 tools; synccheck not run: it gave no summary; racecheck not run: it was not asked"
        );
    }
}
