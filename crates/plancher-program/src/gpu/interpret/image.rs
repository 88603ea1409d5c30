//! What lies in the device's memory when the kernel starts: instruction words and the packed stream.

use plancher_model::{LayerTensor, TensorKey, Weights};

use super::Fault;
use super::element::round;
use crate::gpu::{Element, Plan, Product, RowMajorBits, STAGE_BYTES};

/// A program in the kernel's own formats. It is plain data: nothing here says that it is a good one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `(workers, instructions of the longest list, 4)` words.
    pub instructions: Vec<u32>,
    /// `(stages, workers, 16 KiB)`.
    pub stream: Vec<u8>,
}

impl Image {
    /// Lays out a model's weights as `plan` says, slowly.
    ///
    /// # Errors
    /// When a matrix is missing or not of the plan's size.
    pub fn new(plan: &Plan, weights: &Weights) -> Result<Self, Fault> {
        let mut stream = vec![0; plan.stream_bytes()];
        let mut packed: Option<((Product, usize), Vec<u16>)> = None;
        let mut places = Vec::new();
        for (worker, list) in plan.workers.iter().enumerate() {
            for stage in 0..list.stages as usize {
                let Some(location) = plan.locate(worker, stage) else { continue };
                places.push(((location.product, location.layer), location, plan.stage_offset(worker, stage)));
            }
        }
        // Matrix by matrix, so that only one of them is held row-major.
        places.sort_by_key(|&(key, _, offset)| (key.1, key.0, offset));
        for (key, location, offset) in places {
            if packed.as_ref().is_none_or(|(held, _)| *held != key) {
                packed = Some((key, matrix(plan, weights, key.0, key.1)?));
            }
            let Some((_, elements)) = &packed else { continue };
            let stride = plan.product(key.0).columns;
            let stage = location.pack(RowMajorBits { elements, stride });
            for (out, element) in stream[offset..offset + STAGE_BYTES].as_chunks_mut::<2>().0.iter_mut().zip(stage) {
                *out = element.to_le_bytes();
            }
        }
        Ok(Self { instructions: plan.instruction_words(), stream })
    }
}

/// The stacked matrix of a product, row-major.
fn matrix(plan: &Plan, weights: &Weights, product: Product, layer: usize) -> Result<Vec<u16>, Fault> {
    use LayerTensor::{AttentionOutput, Down, Gate, Key, Query, Up, Value};
    let of_layer = |tensors: &[LayerTensor]| tensors.iter().map(|&tensor| TensorKey::Layer(layer, tensor)).collect();
    let keys: Vec<TensorKey> = match product {
        Product::QueryKeyValue => of_layer(&[Query, Key, Value]),
        Product::Output => of_layer(&[AttentionOutput]),
        Product::GateUp => of_layer(&[Gate, Up]),
        Product::Down => of_layer(&[Down]),
        Product::Head => vec![TensorKey::Head],
    };
    let mut elements = Vec::new();
    for key in keys {
        elements.extend(rows(weights, key, plan.target.element)?);
    }
    let expected = product.matrix_rows(&plan.shape) * plan.product(product).columns;
    if elements.len() != expected {
        return Err(Fault::Matrix { matrix: product.to_string(), expected, found: elements.len() });
    }
    Ok(elements)
}

/// A stored matrix in elements, `(rows, columns)`.
pub(super) fn rows(weights: &Weights, key: TensorKey, element: Element) -> Result<Vec<u16>, Fault> {
    let missing = || Fault::Matrix { matrix: key.to_string(), expected: 1, found: 0 };
    let view = weights.get(key).ok_or_else(missing)?;
    let mut values = vec![0.0; view.columns()];
    let mut elements = Vec::with_capacity(view.rows() * view.columns());
    for row in 0..view.rows() {
        view.dequantize_row(row, &mut values);
        elements.extend(values.iter().map(|&value| round(element, value)));
    }
    Ok(elements)
}
