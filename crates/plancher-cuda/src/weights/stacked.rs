//! Biases of stacked matrices.

/// The parts one after the other, zeros for a part without a bias; nothing when no part has one.
pub(super) fn stacked_bias(parts: &[(Option<&[f32]>, usize)]) -> Option<Vec<f32>> {
    if parts.iter().all(|(bias, _)| bias.is_none()) {
        return None;
    }
    let mut stacked = Vec::with_capacity(parts.iter().map(|(_, rows)| rows).sum());
    for (bias, rows) in parts {
        match bias {
            Some(bias) => stacked.extend_from_slice(bias),
            None => stacked.resize(stacked.len() + rows, 0.0),
        }
    }
    Some(stacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_becomes_zeros_and_no_part_becomes_nothing() {
        assert_eq!(stacked_bias(&[(None, 2), (Some(&[1.0]), 1)]), Some(vec![0.0, 0.0, 1.0]));
        assert_eq!(stacked_bias(&[(None, 2), (None, 1)]), None);
    }
}
