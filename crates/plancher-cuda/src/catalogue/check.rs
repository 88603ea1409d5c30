//! Compiles families for all their architectures and holds the machine code to what is promised.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use super::{Disassembler, Family, Instructions};
use crate::{Architecture, Compiler, Cubin, KernelResources, Result, Specialization};

/// One compiled source.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The family.
    pub family: &'static str,
    /// The constants' label.
    pub specialization: &'static str,
    /// What it was compiled for.
    pub architecture: Architecture,
    /// Size of the machine code.
    pub cubin_bytes: usize,
    /// Whether it came from the cache.
    pub cached: bool,
    /// What its kernels need.
    pub kernels: Vec<KernelResources>,
}

/// A promise that is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The family.
    pub family: &'static str,
    /// The constants' label.
    pub specialization: &'static str,
    /// What it was compiled for.
    pub architecture: Architecture,
    /// What is wrong, in one line.
    pub problem: String,
}

/// What [`check`] found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Everything that compiled, in the order of the catalogue.
    pub rows: Vec<Row>,
    /// What is wrong; empty if all is well.
    pub findings: Vec<Finding>,
}

/// Compiles `families` for those of `architectures` that they claim, on `threads` threads. Instructions are looked at if
/// there is a disassembler.
///
/// # Errors
/// If the disassembler fails; what does not compile is a finding.
pub fn check(
    compiler: &Compiler,
    disassembler: Option<&Disassembler>,
    families: &[&'static Family],
    architectures: &[Architecture],
    threads: usize,
) -> Result<Report> {
    let mut jobs = Vec::new();
    for family in families {
        for (label, constants) in (family.specializations)() {
            let claimed = architectures.iter().filter(|architecture| family.architectures.contains(architecture));
            jobs.extend(claimed.map(|&architecture| Job { family, label, constants: constants.clone(), architecture }));
        }
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, job)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(index).map(|job| (index, job))
                } {
                    let outcome = job.run(compiler, disassembler);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    let mut report = Report::default();
    for (_, outcome) in done {
        let (row, findings) = outcome?;
        report.rows.extend(row);
        report.findings.extend(findings);
    }
    for family in families {
        report.findings.extend(never_compiled(family, architectures, &report.rows));
    }
    Ok(report)
}

/// The kernels of a family that no shape compiles for any of its architectures. Says nothing unless all of them were
/// asked for: older ones lack some kernels.
fn never_compiled(family: &'static Family, architectures: &[Architecture], rows: &[Row]) -> Vec<Finding> {
    let [first, ..] = family.architectures else { return Vec::new() };
    if !family.architectures.iter().all(|architecture| architectures.contains(architecture)) {
        return Vec::new();
    }
    let mine = |row: &&Row| row.family == family.source.name;
    let compiled = |name: &str| rows.iter().filter(mine).flat_map(|row| &row.kernels).any(|kernel| kernel.name == name);
    let missing = family.source.kernels().into_iter().filter(|name| !compiled(name));
    let finding = |name: &str| Finding {
        family: family.source.name,
        specialization: "any",
        architecture: *first,
        problem: format!("`{name}` is never compiled"),
    };
    missing.map(finding).collect()
}

struct Job {
    family: &'static Family,
    label: &'static str,
    constants: Specialization,
    architecture: Architecture,
}

impl Job {
    fn run(&self, compiler: &Compiler, disassembler: Option<&Disassembler>) -> Result<(Option<Row>, Vec<Finding>)> {
        let cubin = match compiler.compile(self.family.source, &self.constants, self.architecture) {
            Ok(cubin) => cubin,
            Err(error) => return Ok((None, vec![self.finding(error.to_string())])),
        };
        let mut findings = self.spills(&cubin.kernels);
        findings.extend(cubin.warnings.iter().map(|warning| self.finding(warning.clone())));
        let wanted = self.family.expected.iter().any(|expectation| expectation.from <= self.architecture.number());
        if let Some(disassembler) = disassembler.filter(|_| wanted) {
            let instructions = Instructions::read(&disassembler.disassemble(cubin.code())?);
            findings.extend(self.missing_instructions(&cubin, &instructions));
        }
        let row = Row {
            family: self.family.source.name,
            specialization: self.label,
            architecture: self.architecture,
            cubin_bytes: cubin.code().len(),
            cached: cubin.cached,
            kernels: cubin.kernels,
        };
        Ok((Some(row), findings))
    }

    fn spills(&self, kernels: &[KernelResources]) -> Vec<Finding> {
        let budget = self.family.spill_budget;
        let spilled = |kernel: &KernelResources| kernel.spill_stores.saturating_add(kernel.spill_loads);
        let over = kernels.iter().filter(|kernel| spilled(kernel) > budget);
        let problem = |kernel: &KernelResources| {
            format!("`{}` spills {} bytes and may spill {budget}", kernel.name, spilled(kernel))
        };
        over.map(|kernel| self.finding(problem(kernel))).collect()
    }

    fn missing_instructions(&self, cubin: &Cubin, instructions: &Instructions) -> Vec<Finding> {
        let due = self.family.expected.iter().filter(|expectation| {
            expectation.from <= self.architecture.number() && cubin.kernel(expectation.kernel).is_some()
        });
        let missing = due.filter(|expectation| instructions.count(expectation.kernel, expectation.instruction) == 0);
        missing
            .map(|expectation| self.finding(format!("`{}` has no `{}`", expectation.kernel, expectation.instruction)))
            .collect()
    }

    fn finding(&self, problem: String) -> Finding {
        Finding {
            family: self.family.source.name,
            specialization: self.label,
            architecture: self.architecture,
            problem,
        }
    }
}
