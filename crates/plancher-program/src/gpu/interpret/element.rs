//! The two 16-bit types of a GPU's elements, rounded as the device's conversions do.

use std::sync::OnceLock;

use half::{bf16, f16};

use crate::gpu::Element;

/// What the device's conversions make of every NaN: so no result is [`crate::gpu::SENTINEL`].
const NAN: u16 = 0x7fff;

/// To nearest, ties to even.
pub(super) fn round(element: Element, x: f32) -> u16 {
    match element {
        _ if x.is_nan() => NAN,
        Element::Bf16 => bf16::from_f32(x).to_bits(),
        Element::F16 => f16::from_f32(x).to_bits(),
    }
}

pub(super) fn value(element: Element, bits: u16) -> f32 {
    /// Looked up, since conversion is most of what the interpreter does.
    static F16: OnceLock<Vec<f32>> = OnceLock::new();
    match element {
        Element::Bf16 => f32::from_bits(u32::from(bits) << 16),
        Element::F16 => {
            F16.get_or_init(|| (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect())[usize::from(bits)]
        }
    }
}

/// `x` as a high element and an element for what that leaves.
pub(super) fn split(element: Element, x: f32) -> (f32, f32) {
    let high = value(element, round(element, x));
    (high, value(element, round(element, x - high)))
}

/// Holds what is about to be rounded to the range of elements.
pub(super) fn clamp(element: Element, x: f32) -> f32 {
    match element {
        Element::Bf16 => x,
        Element::F16 => x.clamp(-65504.0, 65504.0),
    }
}

/// Two elements as the word that carries them.
pub(super) fn pack(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

/// The two elements of a word.
pub(super) fn unpack(word: u32) -> [u16; 2] {
    [word as u16, (word >> 16) as u16]
}

/// The order of logits as the order of numbers; 0 for NaN.
pub(super) fn ordered_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    match () {
        () if x.is_nan() => 0,
        () if bits >> 31 == 1 => !bits,
        () => bits | 1 << 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::SENTINEL;

    #[test]
    fn no_result_is_the_word_that_means_not_there() {
        for element in [Element::Bf16, Element::F16] {
            for bits in 0..=u16::MAX {
                let x = value(element, bits);
                assert_eq!(round(element, x), if x.is_nan() { NAN } else { bits }, "{element} {bits:04x}");
            }
            let worst = round(element, f32::from_bits(u32::MAX));
            assert_ne!(pack(worst, worst), SENTINEL);
        }
    }

    #[test]
    fn two_elements_hold_more_than_one() {
        for element in [Element::Bf16, Element::F16] {
            let (high, low) = split(element, 0.1);
            assert!((high - 0.1).abs() > 1e-6 && (high + low - 0.1).abs() < 1e-6, "{element}: {high} {low}");
        }
    }

    #[test]
    fn larger_logits_have_larger_bits_and_no_candidate_is_the_sentinel() {
        let logits = [f32::NEG_INFINITY, -2.0, -1.0, -0.0, 0.0, 1e-30, 3.0, f32::INFINITY];
        assert!(logits.map(ordered_bits).is_sorted());
        assert!(logits.iter().chain(&[f32::NAN, f32::from_bits(u32::MAX)]).all(|&x| ordered_bits(x) < SENTINEL));
    }
}
