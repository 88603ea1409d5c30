//! From the bytes of tokens to text that can be shown: whole characters only, and nothing that may turn out to be the
//! beginning of a stop string.

/// Collects a generation's text.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    stops: Vec<String>,
    /// Everything decoded so far; cut at the stop string once one is found.
    text: String,
    /// Bytes of `text` handed out.
    shown: usize,
    /// The beginning of a character whose other bytes have not come yet.
    partial: Vec<u8>,
    stopped: bool,
}

impl TextStream {
    /// A stream that ends at the first of `stops` (empty ones are ignored).
    #[must_use]
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self { stops, ..Self::default() }
    }

    /// Appends a token's bytes and returns what can be shown now. Bytes that are not UTF-8 become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        if self.stopped {
            return "";
        }
        self.partial.extend_from_slice(bytes);
        self.decode_partial();
        self.find_stop();
        let end = if self.stopped { self.text.len() } else { self.text.len() - self.held_back() };
        self.show(end)
    }

    /// Ends the stream: returns what was held back.
    pub fn finish(&mut self) -> &str {
        if !self.stopped && !self.partial.is_empty() {
            self.partial.clear();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.show(self.text.len())
    }

    /// Whether a stop string came.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The text so far, without the stop string.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn show(&mut self, end: usize) -> &str {
        let start = std::mem::replace(&mut self.shown, end);
        &self.text[start..end]
    }

    /// Moves whole characters from `partial` to `text`.
    fn decode_partial(&mut self) {
        let mut rest = self.partial.as_slice();
        let mut keep = 0;
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    self.text.push_str(valid);
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.text.push_str(&String::from_utf8_lossy(valid));
                    let Some(invalid) = error.error_len() else {
                        keep = after.len();
                        break;
                    };
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[invalid..];
                }
            }
        }
        self.partial.drain(..self.partial.len() - keep);
    }

    /// Cuts the text at the earliest stop string. None can begin in what was shown: it would have been held back.
    fn find_stop(&mut self) {
        let fresh = &self.text[self.shown..];
        if let Some(start) = self.stops.iter().filter_map(|stop| fresh.find(stop.as_str())).min() {
            self.text.truncate(self.shown + start);
            self.stopped = true;
        }
    }

    /// Bytes of the longest end of the text that begins a stop string.
    fn held_back(&self) -> usize {
        let fresh = &self.text[self.shown..];
        let longest = |stop: &String| {
            let prefixes = stop.char_indices().map(|(end, _)| end).rev();
            prefixes.into_iter().find(|&end| fresh.ends_with(&stop[..end])).unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(stops: &[&str], pieces: &[&[u8]]) -> (Vec<String>, String, bool) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut stream = TextStream::new(&stops);
        let mut shown: Vec<String> = pieces.iter().map(|piece| stream.push(piece).to_owned()).collect();
        shown.push(stream.finish().to_owned());
        (shown, stream.text().to_owned(), stream.is_stopped())
    }

    #[test]
    fn characters_are_shown_whole() {
        let (shown, text, _) = stream(&[], &[b"a\xf0\x9f", b"\x98", b"\x80b"]);
        assert_eq!(shown, ["a", "", "😀b", ""]);
        assert_eq!(text, "a😀b");
    }

    #[test]
    fn invalid_and_unfinished_bytes_become_replacement_characters() {
        let (shown, _, _) = stream(&[], &[b"a\xff", b"b\xe2\x82"]);
        assert_eq!(shown, ["a\u{fffd}", "b", "\u{fffd}"]);
    }

    #[test]
    fn a_stop_string_across_tokens_is_never_shown() {
        let (shown, text, stopped) = stream(&["END", "ND!"], &[b"one E", b"N", b"x EN", b"D more"]);
        assert_eq!(shown, ["one ", "", "ENx ", "", ""]);
        assert_eq!(text, "one ENx ");
        assert!(stopped);
    }

    #[test]
    fn a_held_back_prefix_appears_at_the_end() {
        let (shown, text, stopped) = stream(&["\n\nUser:"], &[b"hi\n", b"\nUs"]);
        assert_eq!(shown, ["hi", "", "\n\nUs"]);
        assert_eq!(text, "hi\n\nUs");
        assert!(!stopped);
    }
}
