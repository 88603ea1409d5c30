//! `lab check`: a learner's file, measured like ours.

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::date;
use super::parent::{ChildCommand, measure};
use super::protocol::{KernelRequest, Request};
use super::run::record;
use crate::directives::at;
use crate::record::{LabRun, SCHEMA, StepRun};
use crate::{Directives, Dtype, LabError, Operation, Result, Step};

/// The largest file that is read, in bytes.
pub const LARGEST_FILE: u64 = 1 << 20;

/// How a file is checked.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Fewer samples, and no series of sizes.
    pub quick: bool,
    /// How the measuring process is started.
    pub child: ChildCommand,
    /// How long that one may say nothing before it is ended.
    pub silence: Duration,
}

/// What was found out about a file.
#[derive(Debug, Clone)]
pub struct CheckReport {
    /// The step.
    pub step: &'static str,
    /// The file's text.
    pub text: String,
    /// One step, with the file as its only version, once for each number type.
    pub run: LabRun,
}

/// Reads a kernel file.
///
/// # Errors
/// If it is not there, no regular file, too large, or no text.
pub fn read(path: &Path) -> Result<String> {
    let failed = |problem: String| LabError::File { path: path.display().to_string(), problem };
    // Opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() {
        return Err(failed("it is no regular file".to_owned()));
    }
    let too_large = || failed(format!("it has more than {LARGEST_FILE} bytes"));
    // Where it is cut off there may be half a character.
    if metadata.len() > LARGEST_FILE {
        return Err(too_large());
    }
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    let bytes = file.take(LARGEST_FILE + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if bytes as u64 > LARGEST_FILE {
        return Err(too_large());
    }
    // What editors on Windows put in front is no part of the text, and would hide a directive on the first line.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// The number types for which a file is compiled: all of the step's, but a product is either in f32 or in bf16.
///
/// # Errors
/// If its directives are wrong, or ask for numbers that the step does not have.
pub fn dtypes(step: &Step, file: &str, text: &str) -> Result<Vec<Dtype>> {
    let directives = match step.operation {
        Some(operation) => Directives::parse_for(operation, file, text)?,
        None => Directives::parse(file, text)?,
    };
    let of_step = step.dtypes();
    match (directives.dtype, step.operation) {
        (Some(dtype), _) if !of_step.contains(&dtype) => {
            Err(at(file, text, "dtype", format!("step `{}` has no kernels in {dtype}", step.id)))
        }
        (Some(dtype), _) => Ok(vec![dtype]),
        (None, Some(Operation::Gemm)) => Ok(vec![Dtype::F32]),
        (None, _) => Ok(of_step),
    }
}

/// Checks a file. `progress` gets a line before each thing that is done.
///
/// # Errors
/// If the file cannot be read, its directives are wrong, or nothing can be measured here. What is wrong with the kernel is in
/// the report.
pub fn check(
    step: &'static Step,
    path: &Path,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<CheckReport> {
    let (start, date) = (Instant::now(), date::now());
    let text = read(path)?;
    let file = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let name = file.strip_suffix(".cu").unwrap_or(&file).to_owned();
    let kernel = |dtype| KernelRequest { version: name.clone(), dtype, text: Some(text.clone()) };
    let kernels: Vec<KernelRequest> = dtypes(step, &file, &text)?.into_iter().map(kernel).collect();
    let request =
        Request { step: step.id.to_owned(), kernels, quick: options.quick, ceilings: false, launches_only: None };
    let answer = measure(&options.child, &request, options.silence, progress)?;
    let kernels = request.kernels.iter().zip(answer.kernels);
    let versions = kernels.map(|(kernel, measured)| record(kernel, &text, measured)).collect();
    let run = StepRun::measured(step.id, versions, answer.ceilings);
    let run = LabRun {
        schema: SCHEMA,
        argv: vec!["lab".to_owned(), "check".to_owned(), step.id.to_owned(), file],
        commit: String::new(),
        dirty: false,
        date,
        machine: answer.machine.unwrap_or_default(),
        steps: vec![run],
        seconds: start.elapsed().as_secs_f64(),
    };
    Ok(CheckReport { step: step.id, text, run })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn a_product_is_in_f32_unless_the_file_says_bf16() {
        let step = catalogue::step("gemm_fast").expect("there");
        let file = "// lab: threads = 256\n// lab: per_block = 64\n";
        if step.dtypes().contains(&Dtype::Bf16) {
            let bf16 = dtypes(step, "my.cu", &format!("{file}// lab: dtype = bf16\n"));
            assert_eq!(bf16.expect("it has both"), [Dtype::Bf16]);
        }
        assert_eq!(dtypes(step, "my.cu", file).expect("right"), [Dtype::F32]);
        let saxpy = catalogue::step("saxpy").expect("there");
        let error = dtypes(saxpy, "my.cu", &format!("{file}// lab: dtype = bf16\n")).expect_err("no such kernels");
        assert_eq!(error.to_string(), "`my.cu`, line 3: `dtype = bf16`: step `saxpy` has no kernels in bf16");
        let transpose = catalogue::step("transpose").expect("there");
        assert_eq!(dtypes(transpose, "my.cu", file).expect("right"), [Dtype::F32, Dtype::Bf16]);
    }

    #[test]
    fn a_file_that_is_not_there_or_too_large_is_an_error() {
        let missing = read(Path::new("no such file.cu")).expect_err("not there").to_string();
        assert!(missing.starts_with("`no such file.cu` cannot be read: "), "{missing}");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.cu");
        let written = |contents: &[u8]| {
            std::fs::write(&file, contents).expect("writable");
            let name = file.display().to_string();
            read(&file).map_err(|error| error.to_string().replace(&name, "a.cu"))
        };
        // The cut would go through a character.
        let large = "ü".repeat(LARGEST_FILE as usize / 2) + "xüü";
        assert_eq!(
            written(large.as_bytes()),
            Err(format!("`a.cu` cannot be read: it has more than {LARGEST_FILE} bytes"))
        );
        assert!(written(b"\xff").is_err_and(|error| error.contains("UTF-8")));
        let text = written("\u{feff}// lab: threads = 32\r\n// lab: blocks = 1\r\n".as_bytes()).expect("it is text");
        assert_eq!(Directives::parse("a.cu", &text).expect("right").threads, [32, 1]);
        assert_eq!(written(b""), Ok(String::new()));
        assert!(read(folder.path()).is_err_and(|error| error.to_string().ends_with("it is no regular file")));
    }
}
