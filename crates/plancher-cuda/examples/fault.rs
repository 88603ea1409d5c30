//! What a caller sees when a kernel goes wrong: an error that names it, kept for all later calls, and no panic or hang.

use plancher_cuda::{Arguments, Compiler, CudaError, Device, DeviceBuffer, Launch, Module, Source, Specialization};

const WILD: Source = Source {
    name: "wild",
    text: "extern \"C\" __global__ void tame(u32* x) { *x = 1; }
extern \"C\" __global__ void wild(u64 address) { *(u32*)address = 1; }",
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::open(0)?;
    let compiler = Compiler::find()?;
    println!("NVRTC {} from {}", compiler.version(), compiler.path().display());
    let module = Module::load(&device, &compiler.compile(WILD, &Specialization::new(), device.architecture())?)?;
    let (tame, wild) = (module.kernel("tame")?, module.kernel("wild")?);
    let word = DeviceBuffer::<u32>::zeroed(&device, 1)?;
    let once = Launch::linear(1, 1);
    // SAFETY: one thread, one word.
    unsafe { tame.launch(&once, &Arguments::new().buffer(&word))? };
    assert_eq!(word.download()?, [1]);
    // SAFETY: refused before anything is launched.
    let refused = unsafe { wild.launch(&once, &Arguments::new().value(0_u32)) };
    println!("{}", refused.expect_err("its parameter has 8 bytes"));
    // SAFETY: refused by the driver: no block has that many threads.
    let refused = unsafe { tame.launch(&Launch::linear(1, 4096), &Arguments::new().buffer(&word)) };
    println!("{}", refused.expect_err("too many threads"));
    // SAFETY: not sound, and meant not to be: the address is nobody's, so that the device stops the kernel.
    let launched = unsafe { wild.launch(&once, &Arguments::new().value(16_u64)) };
    let fault = launched.and_then(|()| device.synchronize()).expect_err("a fault");
    println!("{fault}");
    assert!(matches!(fault, CudaError::Fault { .. }) && fault.to_string().contains("`wild`"));
    assert_eq!(word.download().expect_err("it stays"), fault);
    Ok(())
}
