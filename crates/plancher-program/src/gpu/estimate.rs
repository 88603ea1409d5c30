//! How long a token should take by the plan: the chain of instructions that waits for itself from layer to layer, beside
//! the stream of weights that runs ahead of it as far as the ring is deep.
//!
//! The constants are what the kernel's traces show on one H200, and, where the memory is loaded, what makes its measured
//! tokens of three models come out (`docs/megakernel-log.md`). It is an estimate, not a bound: other devices have other
//! hops, and a long context adds pages to read.

use serde::Serialize;

use super::{Plan, Product, STAGE_BYTES};

/// Rate of a pure stream of weights with as many bytes under way as the kernel allows, in 1e9 bytes a second: 2.4716 GB in
/// 547 us.
pub const H200_STREAM: f64 = 4518.0;
/// What is left of it where exchanges are waited for, during which little is under way.
const LOADED_STREAM: f64 = 0.96;
/// What one multiprocessor takes in at most, in 1e9 bytes a second: 132 of them read 8.7 TB/s from the L2 cache.
const MULTIPROCESSOR_STREAM: f64 = 8700.0 / 132.0;
/// Microseconds that a worker computes on a stage that is there.
const STAGE_COMPUTE: f64 = 0.1;

/// Stages of a product that are followed one by one: by then its end no longer depends on how it began.
const STEADY: usize = 4096;

/// Microseconds between operations.
#[derive(Clone, Copy, Debug)]
struct Hops {
    /// From the last row of one product to all workers' input of the next.
    hop: f64,
    /// From the last row of query, key and value to the output projection's input: attention with a hop on either side.
    attention: f64,
    /// From the last logit to the next token's first product.
    token: f64,
}

/// While nothing else uses the memory: a word is seen 0.7 us after it was written, and sums are waited for and finished.
const IDLE: Hops = Hops { hop: 1.4, attention: 2.7, token: 3.0 };
/// While the weights stream.
const LOADED: Hops = Hops { hop: 2.3, attention: 4.2, token: 12.0 };

/// A span between idle and loaded memory, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// Hops as fast as with an idle memory.
    pub idle: f64,
    /// Hops as slow as beside the stream, and the stream as slow as beside hops.
    pub loaded: f64,
}

/// One product of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProductEstimate {
    /// Which.
    pub product: Product,
    /// Stages of the worker that has most.
    pub stages: usize,
    /// Microseconds until its input is there after the product before has ended.
    pub wait_us: Span,
    /// Microseconds that these stages take to stream.
    pub stream_us: f64,
    /// Microseconds that the worker computes on them.
    pub compute_us: f64,
}

/// The estimate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Rate of the stream that was assumed, in 1e9 bytes a second.
    pub stream_gb_per_s: f64,
    /// The products of a layer in order, then the head.
    pub products: Vec<ProductEstimate>,
    /// Microseconds that a layer's weights take to stream: no layer is faster.
    pub layer_stream_us: f64,
    /// Microseconds of a layer's waits and computing, as if its weights were there: no layer is faster.
    pub layer_path_us: Span,
    /// Microseconds that the stream can run on while everybody waits: the ring's depth.
    pub ring_us: f64,
    /// Microseconds a token.
    pub token_us: Span,
}

impl Estimate {
    /// Of a plan, where weights stream at `gb_per_s` (1e9 bytes a second; [`H200_STREAM`] on an H200).
    #[must_use]
    pub fn new(plan: &Plan, gb_per_s: f64) -> Self {
        let workers = plan.workers.len() as f64;
        let stream_gb_per_s = gb_per_s.min(workers * MULTIPROCESSOR_STREAM);
        let stage_us = workers * STAGE_BYTES as f64 / (stream_gb_per_s * 1e3);
        let wait = |product| {
            let of = |hops: Hops| if product == Product::Output { hops.attention } else { hops.hop };
            Span { idle: of(IDLE), loaded: of(LOADED) }
        };
        let products: Vec<_> = Product::ALL
            .into_iter()
            .map(|product| {
                let cut = plan.product(product);
                let rows = (0..plan.workers.len()).map(|worker| cut.partition.share(worker).len());
                let stages = rows.map(|rows| cut.stages(rows)).max().unwrap_or(0);
                ProductEstimate {
                    product,
                    stages,
                    wait_us: wait(product),
                    stream_us: stages as f64 * stage_us,
                    compute_us: stages as f64 * STAGE_COMPUTE,
                }
            })
            .collect();
        let layer = &products[..Product::OF_LAYER.len()];
        let path = |wait: fn(&ProductEstimate) -> f64| layer.iter().map(|p| p.compute_us + wait(p)).sum();
        let token = |wait: fn(&Span) -> f64, token: f64, stage_us: f64| {
            let mut chain = Vec::with_capacity(plan.shape.layers * layer.len() + 1);
            for _ in 0..plan.shape.layers {
                chain.extend(layer.iter().map(|product| (product.stages, wait(&product.wait_us))));
            }
            chain.extend(products.last().map(|head| (head.stages, wait(&head.wait_us))));
            // A token's first product waits for the token, not for a layer before it.
            chain[0].1 = token;
            pass(&chain, plan.ring.stages, stage_us)
        };
        Self {
            stream_gb_per_s,
            layer_stream_us: layer.iter().map(|product| product.stream_us).sum(),
            layer_path_us: Span { idle: path(|p| p.wait_us.idle), loaded: path(|p| p.wait_us.loaded) },
            ring_us: plan.ring.stages as f64 * stage_us,
            token_us: Span {
                idle: token(|span| span.idle, IDLE.token, stage_us),
                loaded: token(|span| span.loaded, LOADED.token, stage_us / LOADED_STREAM),
            },
            products,
        }
    }
}

/// Microseconds of one token in a long run: a worker that has the most stages of every product (`chain`: stages, and the wait
/// before the first of them), and its producer, which fetches one stage after the other into a ring of `ring` stages.
/// What lies beyond [`STEADY`] stages of a product goes on as they did.
fn pass(chain: &[(usize, f64)], ring: usize, stage_us: f64) -> f64 {
    let mut freed = vec![0.0_f64; ring.max(1)];
    let (mut stage, mut arrived, mut now) = (0, 0.0_f64, 0.0_f64);
    let mut token = || {
        for &(stages, wait) in chain {
            now += wait;
            for _ in 0..stages.min(STEADY) {
                let slot = &mut freed[stage % ring.max(1)];
                arrived = arrived.max(*slot) + stage_us;
                now = now.max(arrived) + STAGE_COMPUTE;
                *slot = now;
                stage += 1;
            }
            let rest = stages.saturating_sub(STEADY) as f64 * stage_us.max(STAGE_COMPUTE);
            now += rest;
            arrived += rest;
            for time in &mut freed {
                *time += rest;
            }
        }
        now
    };
    // The second token finds the ring as the first one left it.
    let first = token();
    token() - first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_stream_and_chain_decides() {
        // Without weights to speak of, the waits; with a slow stream, the stream.
        assert!((pass(&[(1, 5.0), (1, 5.0)], 8, 1e-6) - 10.0 - 2.0 * STAGE_COMPUTE).abs() < 1e-3);
        assert!((pass(&[(100, 1.0), (100, 1.0)], 8, 10.0) - 2000.0).abs() < 1.0);
        // A shallow ring lets the stream idle while everybody waits.
        let chain = [(50, 10.0), (50, 10.0)];
        assert!(pass(&chain, 3, 0.5) > pass(&chain, 12, 0.5) + 5.0);
        assert!((pass(&chain, 24, 0.5) - 50.0).abs() < 1.0);
        // Many stages take as long as they should, and no time to add up.
        assert!((pass(&[(100_000, 1.0)], 8, 0.5) - 50_000.0).abs() < 5.0);
        assert!(pass(&[(1 << 40, 1.0)], 8, 0.5) > 5e11);
    }
}
