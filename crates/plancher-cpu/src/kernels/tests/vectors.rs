//! Attention and elementwise functions.

use half::f16;
use proptest::prelude::*;

use super::products::others;
use super::random::Random;
use crate::kernels::{ATTENTION_CHUNK, AttentionRows, Gate, Isa, Kernels};

/// Attends to `chunks` chunks of random keys and values and returns normalised rows.
fn attend(isa: Isa, rows: usize, head_dim: usize, chunks: usize, first: usize, seed: u64) -> Vec<f32> {
    let kernels = Kernels::with_isa(isa).unwrap();
    let mut random = Random(seed);
    let queries = random.vector(rows * head_dim);
    let (mut sums, mut maxima, mut totals) =
        (vec![0.0; rows * head_dim], vec![f32::NEG_INFINITY; rows], vec![0.0; rows]);
    for chunk in 0..chunks {
        let mut halves = || -> Vec<f16> {
            random.vector(head_dim * ATTENTION_CHUNK).into_iter().map(|x| f16::from_f32(4.0 * x)).collect()
        };
        let (keys, values) = (halves(), halves());
        let mut state =
            AttentionRows { head_dim, queries: &queries, sums: &mut sums, maxima: &mut maxima, totals: &mut totals };
        // Windows that slide by one a row, whose edges fall inside chunks, and some of which miss chunks.
        kernels.attend(&mut state, &keys, &values, |row| {
            let edge = |position: usize| (position + row).saturating_sub(chunk * ATTENTION_CHUNK).min(ATTENTION_CHUNK);
            edge(first)..edge(first + 20)
        });
    }
    sums.chunks_exact(head_dim).zip(&totals).flat_map(|(row, total)| row.iter().map(move |x| x / total)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_of_exponentials_are_the_same_bits(n in 0_usize..3000, spread in 0.1_f32..60.0, seed in any::<u64>()) {
        let mut values: Vec<f32> = Random(seed).vector(n).into_iter().map(|x| x * spread).collect();
        values.iter_mut().step_by(97).for_each(|x| *x = f32::NEG_INFINITY);
        values.iter_mut().skip(5).step_by(101).for_each(|x| *x = f32::NAN);
        let maximum = values.iter().copied().fold(f32::NEG_INFINITY, f32::max).max(-1e30);
        let plain = values.iter().filter(|x| !x.is_nan()).map(|&x| f64::from(x - maximum).exp()).sum::<f64>();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let got = Kernels::with_isa(isa).unwrap().sum_of_exponentials(&values, maximum);
            prop_assert!((got - plain).abs() <= 1e-6 * plain, "{} {} {}", isa, got, plain);
            let reference = Kernels::with_isa(Isa::Scalar).unwrap().sum_of_exponentials(&values, maximum);
            prop_assert_eq!(got.to_bits(), reference.to_bits(), "{}", isa);
        }
    }

    #[test]
    fn values_at_least_a_threshold_are_all_found(n in 0_usize..500, threshold in -1.0_f32..1.0, seed in any::<u64>()) {
        let mut values = Random(seed).vector(n);
        values.iter_mut().step_by(31).for_each(|x| *x = f32::NAN);
        values.iter_mut().skip(3).step_by(29).for_each(|x| *x = threshold);
        let want: Vec<(u32, f32)> = (0..).zip(values.iter().copied()).filter(|(_, x)| *x >= threshold).collect();
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let (mut indices, mut found) = (vec![7], vec![7.0]);
            Kernels::with_isa(isa).unwrap().at_least(&values, threshold, &mut indices, &mut found);
            let got: Vec<(u32, f32)> = indices.into_iter().zip(found).collect();
            prop_assert_eq!(&got, &want, "{}", isa);
        }
    }

    #[test]
    fn attention_agrees(rows in 1_usize..20, dims in 1_usize..9, first in 0_usize..20, seed in any::<u64>()) {
        let reference = attend(Isa::Scalar, rows, 16 * dims, 5, first, seed);
        prop_assert!(reference.iter().all(|x| x.is_finite()));
        for isa in others() {
            for (x, expected) in attend(isa, rows, 16 * dims, 5, first, seed).iter().zip(&reference) {
                prop_assert!((x - expected).abs() < 2e-4, "{} {} {}", isa, x, expected);
            }
        }
    }

    #[test]
    fn gates_agree(n in 1_usize..100, scale in 0.1_f32..200.0, seed in any::<u64>()) {
        let mut random = Random(seed);
        let gate: Vec<f32> = random.vector(n).into_iter().map(|x| scale * x).collect();
        let up = random.vector(n);
        for function in [Gate::Silu, Gate::GeluTanh] {
            for isa in others() {
                let mut out = gate.clone();
                Kernels::with_isa(isa).unwrap().gate_up(function, &mut out, &up);
                for ((&out, &g), &u) in out.iter().zip(&gate).zip(&up) {
                    let x = f64::from(g);
                    let exact = f64::from(u) * match function {
                        Gate::Silu => x / (1.0 + (-x).exp()),
                        Gate::GeluTanh => {
                            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
                        }
                    };
                    prop_assert!((f64::from(out) - exact).abs() <= 2e-6 * exact.abs() + 1e-7 * f64::from(u.abs()), "{} {}", out, exact);
                }
            }
        }
    }
}
