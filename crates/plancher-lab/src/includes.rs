//! A kernel file is complete by itself: what asks the compiler for another file is found before the compiler is asked.

use crate::{LabError, Result};

/// Refuses a file with an `#include` (or `#import`), also in a comment: telling those apart is the compiler's work.
///
/// # Errors
/// Names the file and the line.
pub(crate) fn refuse(file: &str, text: &str) -> Result<()> {
    match find(text) {
        None => Ok(()),
        Some(line) => Err(LabError::Directive {
            file: file.to_owned(),
            line,
            directive: "#include".to_owned(),
            problem: "a kernel file is complete by itself: write out what you need".to_owned(),
        }),
    }
}

/// The line of the first one, counted from 1.
fn find(text: &str) -> Option<usize> {
    let characters = spliced(text);
    let at = |index: usize| characters.get(index).map(|(character, _)| *character);
    (0..characters.len()).find_map(|index| {
        let mut next = match (at(index), at(index + 1), at(index + 2)) {
            (Some('#'), ..) => index + 1,
            (Some('%'), Some(':'), _) => index + 2,
            (Some('?'), Some('?'), Some('=')) => index + 3,
            _ => return None,
        };
        // Blanks and comments may stand before the word.
        loop {
            match (at(next), at(next + 1)) {
                (Some(' ' | '\t' | '\u{b}' | '\u{c}'), _) => next += 1,
                (Some('/'), Some('*')) => {
                    next += 2;
                    while at(next).is_some() && (at(next), at(next + 1)) != (Some('*'), Some('/')) {
                        next += 1;
                    }
                    next += 2;
                }
                _ => break,
            }
        }
        let word: String = (next..).map_while(at).take_while(char::is_ascii_alphabetic).take(8).collect();
        ["include", "import"].iter().any(|name| word.starts_with(name)).then(|| characters[index].1)
    })
}

/// The characters with their lines, without the ends of lines that a backslash continues.
fn spliced(text: &str) -> Vec<(char, usize)> {
    let mut characters = Vec::with_capacity(text.len());
    let mut continued = false;
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 && !continued {
            characters.push(('\n', index));
        }
        let end = line.trim_end_matches([' ', '\t', '\r']);
        let whole = end.strip_suffix('\\').or_else(|| end.strip_suffix("??/"));
        continued = whole.is_some();
        characters.extend(whole.unwrap_or(line).chars().map(|character| (character, index + 1)));
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_way_it_is_written_it_is_found() {
        for text in [
            "\n#include <cstdint>",
            "\n # /* so */ include \"a.h\"",
            "#define A <a>\n#include A",
            "\n#inc\\\nlude <a>",
            "\n#\\\r\n include <a>",
            "\n%:include <a>",
            "\n/* \" */ #include_next <a>",
            "\n#/*\n*/include <a>",
            "\n??=import <a>",
        ] {
            assert_eq!(find(text), Some(2), "{text:?}");
        }
        let error = refuse("my.cu", "// one\n#include <a>\n").expect_err("it asks for a file").to_string();
        assert_eq!(error, "`my.cu`, line 2: `#include`: a kernel file is complete by itself: write out what you need");
    }

    #[test]
    fn other_directives_are_left_alone() {
        for text in
            ["", "#define N 4\n#if __has_include(<a>)\n#endif", "int include = 3;", "#", "#/*", "#pragma unroll"]
        {
            assert_eq!(find(text), None, "{text:?}");
        }
    }
}
