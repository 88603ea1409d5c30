//! Streamed text against the whole text: however it is cut into tokens, what is shown is a valid prefix that never
//! contains a stop string.

use plancher_engine::TextStream;
use proptest::prelude::*;

/// What must come out: the text up to the earliest stop string, as if it had come at once.
fn expected(text: &str, stops: &[String]) -> String {
    let end = stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| {
        // A stop is noticed when its last byte has come; the earliest to end wins, and of those the earliest to start.
        text.find(stop.as_str()).map(|start| (start + stop.len(), start))
    });
    end.min().map_or_else(|| text.to_owned(), |(_, start)| text[..start].to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_shows_the_same_text(
        text in "[abé😀]{0,24}",
        stops in prop::collection::vec("[abé😀]{0,4}", 0..3),
    ) {
        // One byte a token: every boundary inside characters and stop strings occurs.
        let mut stream = TextStream::new(&stops);
        let mut shown = String::new();
        for byte in text.bytes() {
            shown.push_str(stream.push(&[byte]));
            prop_assert!(stream.text().starts_with(&shown));
        }
        shown.push_str(stream.finish());
        prop_assert_eq!(&shown, &expected(&text, &stops));
        prop_assert_eq!(stream.text(), shown.as_str());
        prop_assert_eq!(stream.is_stopped(), shown.len() < text.len());
    }

    #[test]
    fn arbitrary_bytes_decode_as_from_utf8_lossy(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..12)) {
        let mut stream = TextStream::new(&[]);
        let mut shown = String::new();
        for piece in &pieces {
            shown.push_str(stream.push(piece));
        }
        shown.push_str(stream.finish());
        let whole: Vec<u8> = pieces.concat();
        prop_assert_eq!(shown, String::from_utf8_lossy(&whole));
    }

    #[test]
    fn long_tokens_never_show_a_stop_string(text in "[ab]{0,40}", stop in "[ab]{1,4}", size in 1usize..9) {
        let mut stream = TextStream::new(std::slice::from_ref(&stop));
        let mut shown = String::new();
        for piece in text.as_bytes().chunks(size) {
            shown.push_str(stream.push(piece));
            prop_assert!(!shown.contains(&stop));
        }
        shown.push_str(stream.finish());
        prop_assert_eq!(shown, text.split(stop.as_str()).next().unwrap_or_default());
    }
}
