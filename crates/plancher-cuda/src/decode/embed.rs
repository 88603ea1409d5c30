//! The start of a step: `kernels/embed.cu`.

use super::{Prepared, buffers::Buffers};
use crate::catalogue::{Expectation, Family};
use crate::{Architecture, Arguments, DeviceWeights, Element, Launch, Loader, Result, Source, Specialization};

/// The kernel.
pub(crate) static EMBED: Family = Family {
    source: Source { name: "embed", text: include_str!("../../kernels/embed.cu") },
    purpose: "decode: tokens to residual streams",
    architectures: &Architecture::ALL,
    spill_budget: 0,
    expected: &[Expectation::new("embed", 90, "ACQBULK")],
    specializations: || vec![("Llama-3.2-1B", constants(Element::F16, 2048, 128_256))],
};

const THREADS: u32 = 256;

fn constants(element: Element, stride: usize, vocab: usize) -> Specialization {
    element.constants().define("WEIGHT_STRIDE", stride).define("VOCAB", vocab)
}

pub(super) fn prepare(
    loader: &mut Loader,
    weights: &DeviceWeights,
    buffers: &Buffers,
    batch: usize,
) -> Result<Prepared> {
    let matrix = &weights.embedding;
    let kernel = loader.kernel(EMBED.source, &constants(weights.element, matrix.stride, matrix.rows), "embed")?;
    kernel.prefer_shared_memory(100)?;
    let blocks = (matrix.stride as u32).div_ceil(THREADS);
    let launch = Launch::new([blocks, batch as u32, 1], [THREADS, 1, 1]).dependent();
    let arguments = Arguments::new()
        .buffer(&buffers.hidden[0])
        .buffer(&matrix.elements)
        .buffer(&buffers.tokens)
        .value(weights.config.embedding_scale)
        .buffer(&buffers.progress)
        .value(buffers.progress.len() as i32);
    Ok(Prepared { kernel, launch, arguments })
}
