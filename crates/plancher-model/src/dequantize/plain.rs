//! Formats of one number an element: F32, F16, BF16 and `F8_E4M3`.

pub(super) fn f32(row: &[u8], out: &mut [f32]) {
    for (value, b) in out.iter_mut().zip(row.chunks_exact(4)) {
        *value = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    }
}

pub(super) fn f16(row: &[u8], out: &mut [f32]) {
    for (value, b) in out.iter_mut().zip(row.chunks_exact(2)) {
        *value = super::half(b);
    }
}

pub(super) fn bf16(row: &[u8], out: &mut [f32]) {
    for (value, b) in out.iter_mut().zip(row.chunks_exact(2)) {
        *value = half::bf16::from_le_bytes([b[0], b[1]]).to_f32();
    }
}

pub(super) fn f8_e4m3(row: &[u8], out: &mut [f32]) {
    for (value, &byte) in out.iter_mut().zip(row) {
        *value = f8_e4m3_to_f32(byte);
    }
}

/// One `F8_E4M3` number (OCP 8-bit floating point, PyTorch's `float8_e4m3fn`): sign, 4 bits of exponent with
/// bias 7, 3 bits of mantissa, no infinities, `S.1111.111` is not a number.
#[must_use]
pub const fn f8_e4m3_to_f32(byte: u8) -> f32 {
    let sign = (byte as u32 & 0x80) << 24;
    let exponent = (byte as u32 >> 3) & 0xf;
    let mantissa = byte as u32 & 7;
    if byte & 0x7f == 0x7f {
        return f32::from_bits(sign | 0x7fc0_0000);
    }
    if exponent == 0 {
        let magnitude = mantissa as f32 / 512.0;
        return f32::from_bits(sign | magnitude.to_bits());
    }
    // Both biases: 127 - 7.
    f32::from_bits(sign | (exponent + 120) << 23 | mantissa << 20)
}

#[cfg(test)]
mod tests {
    use super::f8_e4m3_to_f32;

    /// The table of the OCP specification's extremes, and the definition of every other code by arithmetic.
    #[test]
    fn f8_e4m3_is_the_ocp_format() {
        assert_eq!(f8_e4m3_to_f32(0x7e).to_bits(), 448.0f32.to_bits());
        assert_eq!(f8_e4m3_to_f32(0x08).to_bits(), 0.015_625f32.to_bits());
        assert_eq!(f8_e4m3_to_f32(0x01).to_bits(), 0.001_953_125f32.to_bits());
        assert_eq!(f8_e4m3_to_f32(0x80).to_bits(), (-0.0f32).to_bits());
        assert!(f8_e4m3_to_f32(0x7f).is_nan() && f8_e4m3_to_f32(0xff).is_nan());
        for byte in (0..=255u8).filter(|byte| byte & 0x7f != 0x7f) {
            let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
            let magnitude = match exponent {
                0 => mantissa / 8.0 * 2f32.powi(-6),
                _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
            };
            let expected = if byte < 128 { magnitude } else { -magnitude };
            assert_eq!(f8_e4m3_to_f32(byte).to_bits(), expected.to_bits(), "{byte:#04x}");
        }
    }
}
