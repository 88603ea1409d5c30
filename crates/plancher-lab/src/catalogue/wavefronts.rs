//! How often the matrix products of steps 5 and 6 go to shared memory (the plain ones: to the first-level cache), counted
//! from their text: the roofline of shared memory is drawn from it.

/// Wavefronts for each FMA of a warp, by step and version. A wavefront is 128 bytes at most: what a multiprocessor's shared
/// memory and first-level cache give in a clock. A 16-byte read that all lanes share takes two, as was measured by itself; it
/// serves four steps of k, and so is half a wavefront for each row of `a` and step.
static WAVEFRONTS: &[(&str, &str, f64)] = &[
    ("gemm", "coalesced", 2.0),
    ("gemm", "tiled", 1.5),
    ("gemm", "two_outputs", 1.0),
    ("gemm", "four_outputs", 0.75),
    ("gemm_fast", "register_column", 0.625),
];

/// Operations for each byte that a version takes from shared memory, where it is counted: an FMA of a warp is 64.
#[must_use]
pub fn operations_per_shared_byte(step: &str, version: &str) -> Option<f64> {
    let counted = WAVEFRONTS.iter().find(|(of_step, of, _)| (*of_step, *of) == (step, version));
    counted.map(|(_, _, wavefronts)| 64.0 / (128.0 * wavefronts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_textbook_tile_does_a_third_of_an_operation_a_byte() {
        let tiled = operations_per_shared_byte("gemm", "tiled").expect("counted");
        assert!((tiled - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(operations_per_shared_byte("gemm", "no such version"), None);
    }
}
