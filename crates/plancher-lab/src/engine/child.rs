//! The measuring process: it reads one request from its standard input and answers on its standard output.

use std::io::{Read as _, Write as _};

use super::protocol::{KEY, Message, Request};
use super::session::{Ending, measure};
use crate::LabError;

/// The most bytes of a request.
const LARGEST_REQUEST: u64 = 64 << 20;

/// What the program does when it is started to measure (the hidden command `lab __child`). Returns the status to end with: 0
/// if all was said, 3 if a kernel took the device with it, and 1 for other errors, which are said too.
#[must_use]
pub fn child_main() -> u8 {
    let mut text = String::new();
    let read = std::io::stdin().take(LARGEST_REQUEST).read_to_string(&mut text);
    let request = read.map_err(|error| error.to_string()).and_then(|_| {
        serde_json::from_str::<Request>(&text).map_err(|error| format!("the request cannot be read: {error}"))
    });
    let key = std::env::var(KEY).unwrap_or_default();
    let mut say = |message: &Message| {
        let mut out = std::io::stdout().lock();
        // If nobody listens any more, there is nobody to tell.
        let _ = out.write_all(message.signed(&key).as_bytes()).and_then(|()| out.flush());
    };
    let outcome = match request {
        Ok(request) => measure(&request, &mut say),
        Err(text) => Err(Ending::Error(LabError::Child(text))),
    };
    match outcome {
        Ok(()) => 0,
        Err(Ending::Fault) => 3,
        Err(Ending::Error(error)) => {
            say(&Message::Broken { text: error.to_string() });
            1
        }
    }
}
