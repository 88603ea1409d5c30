//! A short fingerprint of logits: equal bits give equal fingerprints, so that two runs can be compared by eye.

/// FNV-1a, 64 bits, over the little-endian bytes of `values`.
#[must_use]
pub fn hash_logits(values: &[f32]) -> u64 {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_fnv_1a() {
        assert_eq!(hash_logits(&[]), 0xcbf2_9ce4_8422_2325);
        // The published value for the four bytes "fooo"... is that of their float.
        let float = f32::from_le_bytes(*b"chon");
        let by_hand = b"chon"
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211));
        assert_eq!(hash_logits(&[float]), by_hand);
        assert_ne!(hash_logits(&[0.0]), hash_logits(&[-0.0]));
    }
}
