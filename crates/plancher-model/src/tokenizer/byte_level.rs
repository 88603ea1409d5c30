//! The alphabet of byte-level BPE: GPT-2 writes each byte as one printable character, so that vocabularies
//! can be stored as text. Printable Latin-1 bytes stand for themselves, the others are moved above U+0100.

use std::sync::LazyLock;

/// How many characters the bytes without a printable form are moved up by.
const MOVED_BASE: u32 = 0x100;

/// The character of each byte.
pub(super) static BYTE_TO_CHAR: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut moved = 0;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
            char::from(byte)
        } else {
            moved += 1;
            char::from_u32(MOVED_BASE + moved - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    })
});

/// The byte of each character of the alphabet; all of them lie below U+0144.
static CHAR_TO_BYTE: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut table = [None; 0x144];
    for (byte, character) in BYTE_TO_CHAR.iter().enumerate() {
        table[*character as usize] = Some(byte as u8);
    }
    table
});

/// The bytes that `text` stands for, or nothing when a character is not of the alphabet.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| CHAR_TO_BYTE.get(c as usize).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_alphabet() {
        for byte in 0..=255_u8 {
            assert_eq!(decode(&BYTE_TO_CHAR[byte as usize].to_string()), Some(vec![byte]));
        }
    }

    #[test]
    fn known_characters_are_gpt_2s() {
        assert_eq!(BYTE_TO_CHAR[b' ' as usize], 'Ġ');
        assert_eq!(BYTE_TO_CHAR[b'\n' as usize], 'Ċ');
        assert_eq!(BYTE_TO_CHAR[0xAD], 'Ń');
        assert_eq!(decode("Ġhé"), Some(vec![b' ', b'h', 0xE9]));
        assert_eq!(decode("▁"), None);
    }
}
