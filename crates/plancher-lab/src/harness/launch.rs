//! The one place where the lab puts work on the device: kernels that nobody vouches for, a learner's among them.
#![expect(
    unsafe_code,
    reason = "launching a kernel is an unsafe call; the lab's reason for being sound is said once, here"
)]

use plancher_cuda::{Arguments, Device, Graph, Kernel, Launch, Matmul, Product, ProductF32};

use super::memory::View;
use crate::Result;

/// Launches a kernel. It may be wrong in any way: what it does to the device's memory is found out afterwards, by guards,
/// checksums and a comparison with double precision, and a fault ends the process that measures.
///
/// # Errors
/// If the arguments do not fit the kernel, the shape is impossible, or the device has failed.
pub fn launch(kernel: &Kernel, launch: &Launch, arguments: &Arguments) -> Result<()> {
    // SAFETY: the measuring process maps no memory of the host into the device's addresses, so that a kernel can only spoil
    // the device's memory, of which the host believes nothing that it has not checked; arrays live until the device has
    // been waited for, since freeing one waits.
    unsafe { kernel.launch(launch, arguments)? };
    Ok(())
}

/// Replays a graph, under the same conditions.
///
/// # Errors
/// If the device has failed.
pub fn replay(graph: &mut Graph) -> Result<()> {
    // SAFETY: as in `launch`.
    unsafe { graph.replay()? };
    Ok(())
}

/// The vendor's product in f32.
pub(super) fn multiply_f32(matmul: &mut Matmul, shape: ProductF32, [a, b, c]: [u64; 3]) -> Result<()> {
    // SAFETY: as in `launch`.
    unsafe { matmul.multiply_f32(shape, a, b, c)? };
    Ok(())
}

/// The vendor's product in bf16.
pub(super) fn multiply(matmul: &mut Matmul, product: &Product, m: usize, [a, b, c]: [u64; 3]) -> Result<()> {
    // SAFETY: as in `launch`.
    unsafe { matmul.multiply(product, m, a, b, c)? };
    Ok(())
}

/// Sets every bit of an array.
pub(super) fn poison(device: &Device, view: &View) -> Result<()> {
    // SAFETY: the view was cut from an allocation on the device, of which the host keeps no copy.
    unsafe { device.fill(view.pointer, 0xff, view.bytes)? };
    Ok(())
}
