//! One file over HTTP: resumed where an earlier try broke off, bounded in how long it waits for the next byte.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ureq::Agent;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};

use super::pull::Pulling;
use super::settings::SourceSettings;
use super::store::{PartialFile, cancelled, is_complete};
use crate::{ModelError, Result};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the next byte may take.
const STALL: Duration = Duration::from_secs(30);
/// How often a transfer that broke off is taken up again without a byte of progress.
const RETRIES: u32 = 2;

/// A client of the hub.
pub(super) struct Client<'s> {
    agent: Agent,
    settings: &'s SourceSettings,
}

/// What is known of a file before it is fetched.
pub(super) struct Expected<'a> {
    pub(super) url: &'a str,
    pub(super) bytes: Option<u64>,
    pub(super) sha256: Option<&'a str>,
}

fn failed(url: &str, problem: impl Into<String>) -> ModelError {
    ModelError::Fetch { what: url.to_owned(), problem: problem.into() }
}

impl<'s> Client<'s> {
    pub(super) fn new(settings: &'s SourceSettings) -> Self {
        Self::with_stall(settings, STALL)
    }

    fn with_stall(settings: &'s SourceSettings, stall: Duration) -> Self {
        let config = Agent::config_builder()
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(stall))
            .timeout_per_read(Some(stall))
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .http_status_as_error(false)
            .user_agent(concat!("plancher/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into(), settings }
    }

    fn get(&self, url: &str, from: u64) -> Result<Response<ureq::Body>> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.settings.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        request.call().map_err(|error| failed(url, error.to_string()))
    }

    /// The error that a status means, if it is one.
    fn refused(&self, url: &str, status: StatusCode) -> Option<ModelError> {
        let token = if self.settings.token.is_some() { "the token is not allowed" } else { "no token is set" };
        let problem = match status.as_u16() {
            200..=299 => return None,
            401 | 403 => {
                format!("{status}: the repository is gated, private or does not exist, and {token} (`HF_TOKEN`)")
            }
            404 => "404: there is no such repository, revision or file".to_owned(),
            _ => format!("the server answered {status}"),
        };
        Some(failed(url, problem))
    }

    /// Fetches a small document.
    pub(super) fn document(&self, url: &str) -> Result<Vec<u8>> {
        const LARGEST: u64 = 32 << 20;
        let mut response = self.get(url, 0)?;
        if let Some(error) = self.refused(url, response.status()) {
            return Err(error);
        }
        response.body_mut().with_config().limit(LARGEST).read_to_vec().map_err(|e| failed(url, e.to_string()))
    }

    /// Fetches a file to `target`, unless it is there. One of another size is replaced.
    pub(super) fn file(&self, expected: &Expected<'_>, target: &Path, pulling: &mut Pulling<'_>) -> Result<()> {
        if is_complete(target, expected.bytes) {
            return Ok(());
        }
        let mut partial = PartialFile::open(target, true, pulling.cancelled)?;
        if partial.is_superfluous(expected.bytes) {
            return Ok(());
        }
        if expected.bytes.is_some_and(|bytes| partial.length() > bytes) {
            partial.restart()?;
        }
        let mut failures = 0;
        while expected.bytes.is_none_or(|bytes| partial.length() < bytes) {
            let before = partial.length();
            match self.transfer(expected, target, &mut partial, pulling) {
                Ok(()) if expected.bytes.is_none() => break,
                Ok(()) if partial.length() > before => failures = 0,
                Ok(()) => return Err(failed(expected.url, "the server sent nothing")),
                Err(error) => {
                    failures = if partial.length() > before { 0 } else { failures + 1 };
                    let final_error = !matches!(error, Interrupted::Connection(_)) || failures > RETRIES;
                    if final_error {
                        return Err(error.into());
                    }
                    std::thread::sleep(Duration::from_millis(200) * failures);
                }
            }
        }
        partial.finish(expected.bytes, expected.sha256)
    }

    /// One request, from where the file ends to where the connection does.
    fn transfer(
        &self,
        expected: &Expected<'_>,
        target: &Path,
        partial: &mut PartialFile,
        pulling: &mut Pulling<'_>,
    ) -> std::result::Result<(), Interrupted> {
        let url = expected.url;
        let mut response = self.get(url, partial.length()).map_err(Interrupted::Connection)?;
        let status = response.status();
        if status == StatusCode::RANGE_NOT_SATISFIABLE {
            partial.restart()?;
            return Err(Interrupted::Connection(failed(url, "the server has less than was fetched before")));
        }
        if let Some(error) = self.refused(url, status) {
            let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            return Err(if passing { Interrupted::Connection(error) } else { Interrupted::Final(error) });
        }
        // A server that does not resume sends the file from its start.
        if status != StatusCode::PARTIAL_CONTENT && partial.length() > 0 {
            partial.restart()?;
        }
        let mut reader = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            if pulling.is_cancelled() {
                return Err(Interrupted::Final(cancelled(target)));
            }
            let count =
                reader.read(&mut buffer).map_err(|error| Interrupted::Connection(failed(url, error.to_string())))?;
            if count == 0 {
                return Ok(());
            }
            if expected.bytes.is_some_and(|bytes| partial.length() + count as u64 > bytes) {
                return Err(Interrupted::Final(failed(url, "the server sends more than it announced")));
            }
            partial.append(&buffer[..count])?;
            pulling.progress(partial.length(), expected.bytes);
        }
    }
}

/// Why a request ended early.
enum Interrupted {
    /// The connection or the server's mood: worth another try.
    Connection(ModelError),
    /// Anything else.
    Final(ModelError),
}

impl From<ModelError> for Interrupted {
    fn from(error: ModelError) -> Self {
        Self::Final(error)
    }
}

impl From<Interrupted> for ModelError {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Connection(error) | Interrupted::Final(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_server_that_stalls_is_left_and_what_it_sent_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for (count, stream) in listener.incoming().map_while(std::result::Result::ok).enumerate() {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let ranges = lines.by_ref().map_while(std::result::Result::ok).take_while(|line| !line.is_empty());
                let from = ranges.filter(|line| line.to_lowercase().starts_with("range:")).count() * 5;
                let body = &b"0123456789"[from..];
                let sent = if count == 0 { &body[..5] } else { &body[..0] };
                let status = if from > 0 { "206 Partial Content" } else { "200 OK" };
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
                let mut stream = stream;
                stream.write_all(&[head.as_bytes(), sent].concat()).unwrap();
                // The connection stays open, and nothing more comes.
                open.push(stream);
            }
        });
        let settings = SourceSettings::from_variables(|_| None);
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        let mut events = |_: crate::PullEvent<'_>| {};
        let mut pulling = Pulling { events: &mut events, cancelled: &AtomicBool::new(false) };
        let expected = Expected { url: &url, bytes: Some(10), sha256: None };
        let client = Client::with_stall(&settings, Duration::from_millis(50));
        let error = client.file(&expected, &target, &mut pulling).unwrap_err().to_string();
        assert!(error.contains("timeout") && error.contains(&url), "{error}");
        let kept: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let contents: Vec<_> = kept.iter().filter_map(|path| std::fs::read(path).ok()).collect();
        assert!(!target.exists() && contents.contains(&b"01234".to_vec()), "{kept:?}");
    }
}
