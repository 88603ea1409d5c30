//! Stored rows as elements of the device's type, on all threads of the host.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use plancher_model::{DType, Scale, TensorView};

use super::Element;

/// A stored value is beyond what f16 can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Whether rows can be copied as they are.
pub(super) fn is_exact(view: &TensorView<'_>, element: Element) -> bool {
    let same = matches!((view.dtype(), element), (DType::BF16, Element::Bf16) | (DType::F16, Element::F16));
    same && matches!(view.tensor.scale, Scale::One)
}

/// Writes rows from `first` on to `out`, `(rows, stride)`, zeros from the row's end to the stride.
///
/// # Errors
/// If a finite value would become infinite.
///
/// # Panics
/// If `out` is not whole rows or they are not stored.
pub(super) fn rows(
    view: &TensorView<'_>,
    element: Element,
    first: usize,
    stride: usize,
    out: &mut [u16],
) -> Result<(), TooLarge> {
    let count = out.len() / stride;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(count.max(1));
    let per_thread = count.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts = out.chunks_mut(per_thread * stride).enumerate();
        let workers: Vec<_> = parts
            .map(|(part, out)| scope.spawn(move || part_of_rows(view, element, first + part * per_thread, stride, out)))
            .collect();
        // A worker that panicked has broken an invariant: go on panicking.
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn part_of_rows(
    view: &TensorView<'_>,
    element: Element,
    first: usize,
    stride: usize,
    out: &mut [u16],
) -> Result<(), TooLarge> {
    let columns = view.columns();
    let mut values = vec![0.0_f32; columns];
    for (row, out) in (first..).zip(out.chunks_exact_mut(stride)) {
        let (out, padding) = out.split_at_mut(columns);
        padding.fill(0);
        if is_exact(view, element) {
            for (out, bytes) in out.iter_mut().zip(view.row(row).as_chunks::<2>().0) {
                *out = u16::from_le_bytes(*bytes);
            }
            continue;
        }
        view.dequantize_row(row, &mut values);
        match element {
            Element::Bf16 => {
                bytemuck::cast_slice_mut::<u16, bf16>(out).convert_from_f32_slice(&values);
            }
            Element::F16 => {
                bytemuck::cast_slice_mut::<u16, f16>(out).convert_from_f32_slice(&values);
                // The largest number that does not round up to infinity.
                if values.iter().any(|value| value.is_finite() && value.abs() >= 65_520.0) {
                    return Err(TooLarge);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plancher_model::Tensor;

    use super::*;

    fn tensor(dtype: DType, rows: usize, columns: usize, scale: Scale) -> Tensor {
        Tensor { name: "t".to_owned(), dtype, rows, columns, file: 0, offset: 0, scale }
    }

    #[test]
    fn rows_are_converted_and_padded_wherever_the_threads_cut_them() {
        let (n, columns, stride) = (37, 5, 64);
        let values: Vec<f32> = (0..n * columns).map(|i| i as f32 * 0.37 - 20.0).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = tensor(DType::F32, n, columns, Scale::Tensor(0.5));
        let view = TensorView { tensor: &tensor, bytes: &bytes };
        let mut out = vec![u16::MAX; (n - 3) * stride];
        rows(&view, Element::F16, 3, stride, &mut out).expect("small numbers");
        for (row, out) in out.chunks(stride).enumerate() {
            let expected = values[(row + 3) * columns..][..columns].iter().map(|v| f16::from_f32(v * 0.5).to_bits());
            assert!(out[..columns].iter().copied().eq(expected), "row {row}");
            assert!(out[columns..].iter().all(|&padding| padding == 0));
        }
    }

    #[test]
    fn a_number_beyond_f16_is_noticed_and_bf16_holds_it() {
        let stored = [1.0_f32, 70_000.0].map(bf16::from_f32);
        let bytes: Vec<u8> = stored.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = tensor(DType::BF16, 1, 2, Scale::One);
        let view = TensorView { tensor: &tensor, bytes: &bytes };
        let mut out = [0; 64];
        assert_eq!(rows(&view, Element::F16, 0, 64, &mut out), Err(TooLarge));
        assert_eq!(rows(&view, Element::Bf16, 0, 64, &mut out), Ok(()));
        assert_eq!(out[..2], stored.map(bf16::to_bits));
    }
}
