//! What a first profile of each version refuted, and what is said instead since. Predictions stay as they were made; a
//! correction is held against the profiles that come after it, and can fail like any other claim. Why a version does what
//! its prediction did not expect, the version's own text says.

use super::{gemm_fast, reduction, saxpy, transpose};
use crate::step::{Change, Claims, Limiter};
use crate::{Dtype, Step, Version};

/// What is said otherwise of a version since it was profiled.
struct Correction {
    step: &'static Step,
    version: &'static str,
    dtypes: &'static [Dtype],
    changes: &'static [Change],
}

const F32: &[Dtype] = &[Dtype::F32];
const BF16: &[Dtype] = &[Dtype::Bf16];
const BOTH: &[Dtype] = &[Dtype::F32, Dtype::Bf16];

/// All of them; the profile by which they go is a first one, of Nsight Compute 2025.3.1 on an H200.
static CORRECTIONS: &[Correction] = &[
    Correction { step: &saxpy::STEP, version: "scalar", dtypes: F32, changes: &[Change::Limiter(Limiter::L2)] },
    Correction { step: &saxpy::STEP, version: "grid_stride", dtypes: F32, changes: &[Change::Limiter(Limiter::L2)] },
    Correction { step: &transpose::STEP, version: "naive", dtypes: F32, changes: &[Change::Bytes(1.2)] },
    Correction { step: &transpose::STEP, version: "naive", dtypes: BF16, changes: &[Change::Bytes(1.15)] },
    // By the same first profile (1.8); it was overlooked, since conflicts were judged in f32 only.
    Correction { step: &transpose::STEP, version: "padded", dtypes: BOTH, changes: &[Change::Limiter(Limiter::L2)] },
    Correction {
        step: &reduction::STEP,
        version: "interleaved_divergent",
        dtypes: F32,
        changes: &[Change::Limiter(Limiter::L1), Change::TopStalls(["long_scoreboard", "short_scoreboard"])],
    },
    Correction { step: &reduction::STEP, version: "sequential", dtypes: F32, changes: &[Change::Limiter(Limiter::L1)] },
    Correction { step: &reduction::STEP, version: "first_add", dtypes: F32, changes: &[Change::Limiter(Limiter::L1)] },
    Correction {
        step: &reduction::STEP,
        version: "warp_shuffle",
        dtypes: F32,
        changes: &[Change::Limiter(Limiter::L2)],
    },
    Correction {
        step: &gemm_fast::STEP,
        version: "register_column",
        dtypes: F32,
        changes: &[Change::TopStalls(["long_scoreboard", "barrier"])],
    },
    Correction {
        step: &gemm_fast::STEP,
        version: "register_square",
        dtypes: F32,
        changes: &[
            Change::Limiter(Limiter::L1),
            Change::BankConflicts(1.6),
            Change::TopStalls(["not_selected", "long_scoreboard"]),
        ],
    },
    Correction {
        step: &gemm_fast::STEP,
        version: "vectors",
        dtypes: F32,
        changes: &[Change::TopStalls(["not_selected", "long_scoreboard"])],
    },
    Correction {
        step: &gemm_fast::STEP,
        version: "warp_tiles",
        dtypes: F32,
        changes: &[Change::TopStalls(["not_selected", "long_scoreboard"])],
    },
    Correction {
        step: &gemm_fast::STEP,
        version: "wgmma_ring",
        dtypes: BF16,
        changes: &[Change::TopStalls(["barrier", "gmma"])],
    },
    Correction {
        step: &gemm_fast::STEP,
        version: "clusters",
        dtypes: BF16,
        changes: &[Change::TopStalls(["barrier", "gmma"])],
    },
];

/// What a profile of a version in numbers of a type has refuted, and what is said since.
#[must_use]
pub fn corrections(step: &Step, version: &Version, dtype: Dtype) -> &'static [Change] {
    let is_it = |it: &&Correction| (it.step.id, it.version) == (step.id, version.id) && it.dtypes.contains(&dtype);
    CORRECTIONS.iter().find(is_it).map_or(&[], |it| it.changes)
}

/// What is said of a version now: its prediction where that has not been refuted.
#[must_use]
pub fn claims(step: &Step, version: &Version, dtype: Dtype) -> Claims {
    corrections(step, version, dtype).iter().fold(version.prediction.claims(), |claims, &change| claims.with(change))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_correction_is_of_a_version_and_changes_what_was_predicted() {
        for (index, correction) in CORRECTIONS.iter().enumerate() {
            let Correction { step, version: id, dtypes, changes } = correction;
            let version = step.version(id).expect("it is there");
            assert!(!dtypes.is_empty() && dtypes.iter().all(|dtype| version.dtypes.contains(dtype)), "{id}");
            assert!(!changes.is_empty(), "{id}");
            let predicted = version.prediction.claims();
            assert!(changes.iter().all(|&change| predicted.with(change) != predicted), "{id} changes nothing");
            assert!(!version.outcome.is_empty(), "{id} does not say why");
            let twice = |other: &Correction| {
                (other.step.id, other.version) == (step.id, *id) && other.dtypes.iter().any(|it| dtypes.contains(it))
            };
            assert!(!CORRECTIONS[..index].iter().any(twice), "{id} is there twice");
        }
    }

    #[test]
    fn what_is_said_now_is_the_prediction_where_nothing_refuted_it() {
        let of = |id: &str| saxpy::STEP.version(id).expect("there");
        let (scalar, vectors) = (of("scalar"), of("vectors"));
        assert_eq!(claims(&saxpy::STEP, vectors, Dtype::F32), vectors.prediction.claims());
        let now = claims(&saxpy::STEP, scalar, Dtype::F32);
        assert_eq!((scalar.prediction.limiter, now.limiter), (Limiter::Memory, Limiter::L2));
        assert_eq!(now.top_stalls, scalar.prediction.top_stalls);
    }
}
