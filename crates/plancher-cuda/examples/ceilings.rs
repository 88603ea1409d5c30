//! Measures the ceilings of the first GPU, or with `--least` only runs everything, under `compute-sanitizer` for example.
//! Then tries what a device must bear: too large a request, and copies without waiting.

use plancher_cuda::ceilings::{Ceilings, Effort};
use plancher_cuda::{Compiler, CudaError, Device, DeviceBuffer, PinnedBuffer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let effort = if std::env::args().any(|argument| argument == "--least") { Effort::LEAST } else { Effort::FULL };
    let device = Device::open(0)?;
    let ceilings = Ceilings::measure(&device, &Compiler::find()?, effort)?;
    for rate in &ceilings.rates {
        println!("{:?} {} bytes: {:.1} GB/s {:.0?}", rate.traffic, rate.working_set, rate.gb_per_s, rate.samples);
    }
    for cost in &ceilings.costs {
        println!("{:?}: {:.3} us {:.3?}", cost.step, cost.microseconds, cost.samples);
    }
    for product in &ceilings.products {
        println!("{} {}: {:.1} TFLOP/s {:.0?}", product.number, product.size, product.tflop_per_s, product.samples);
    }
    for working_set in [1_u64 << 28, 2_471_600_000, 16 << 30] {
        println!("read ceiling at {working_set} bytes: {:?} GB/s", ceilings.read_ceiling(working_set));
    }
    if effort != Effort::LEAST {
        // Asking for more than there is must be an error that leaves the device usable. (Tools count it as an error.)
        let too_much = DeviceBuffer::<u8>::uninitialized(&device, 1 << 40);
        assert!(matches!(too_much, Err(CudaError::OutOfMemory { .. })), "{too_much:?}");
        println!("{}", too_much.err().map_or_else(String::new, |error| error.to_string()));
    }
    let mut pinned = PinnedBuffer::<u32>::zeroed(&device, 1000)?;
    pinned.copy_from_slice(0, &(0..1000).collect::<Vec<u32>>())?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&device, 1000)?;
    // SAFETY: the download below waits before `pinned` is touched again.
    unsafe { buffer.upload_async(10, &pinned, 20, 100)? };
    let values = buffer.download()?;
    assert!(values[..10].iter().all(|&value| value == 0) && values[10..110].iter().copied().eq(20..120));
    println!("memory: {:?}", device.memory()?);
    Ok(())
}
