//! How many distinct experts a pass reads when every token is routed on its own.

use crate::error::{Result, product};
use crate::{Experts, FloorError};

/// The expected share of a layer's experts that `tokens` tokens read: `1 − (1 − k/E)^tokens`.
#[must_use]
pub fn expected_share(experts: Experts, tokens: u64) -> f64 {
    let share = experts.active as f64 / experts.total as f64;
    // `1 − (1 − share)^tokens` without cancellation.
    -f64::exp_m1(tokens as f64 * f64::ln_1p(-share))
}

/// `elements` of all experts together times the expected share: exact for one token, else rounded to the nearest.
pub(crate) fn expected_distinct(elements: u128, experts: Experts, tokens: u64) -> Result<u128> {
    if experts.total == 0 || experts.active == 0 || experts.active > experts.total {
        return Err(FloorError::invalid(
            "experts",
            format!("`{}` of `{}` experts a token cannot be", experts.active, experts.total),
        ));
    }
    if tokens == 1 {
        return Ok(product("elements of experts", [elements, experts.active.into()])? / u128::from(experts.total));
    }
    Ok(((elements as f64 * expected_share(experts, tokens)).round() as u128).min(elements))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_number_follows_the_formula() {
        let mixtral = Experts { total: 8, active: 2 };
        let distinct = |tokens| 8.0 * expected_share(mixtral, tokens);
        assert!((distinct(1) - 2.0).abs() < 1e-12);
        assert!((distinct(2) - 3.5).abs() < 1e-12);
        assert!((distinct(16) - 8.0 * (1.0 - 0.75f64.powi(16))).abs() < 1e-12);
        assert_eq!(expected_distinct(8000, mixtral, 1).unwrap(), 2000);
        assert_eq!(expected_distinct(8000, mixtral, 2).unwrap(), 3500);
        assert_eq!(expected_distinct(8000, mixtral, 1 << 40).unwrap(), 8000);
    }

    #[test]
    fn all_experts_active_reads_all_and_impossible_counts_are_refused() {
        let all = Experts { total: 4, active: 4 };
        for tokens in [1, 2, 1000] {
            assert_eq!(expected_distinct(400, all, tokens).unwrap(), 400);
        }
        for (total, active) in [(0, 0), (4, 0), (4, 5)] {
            assert!(expected_distinct(1, Experts { total, active }, 2).is_err());
        }
    }
}
