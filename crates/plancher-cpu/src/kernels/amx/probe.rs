//! Whether AMX can be used: the processor lists it, the system grants it, and it computes. Some virtual machines list
//! it and fault, so that a small product is first tried in a child process.

use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

use super::unit::{SIDE, STEP_BYTES, Segment, Sums, TileUnit, Unit};
use crate::kernels::input::BrainChunk;

/// Whether this process may and can use it; found out once.
pub(in crate::kernels) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| crate::kernels::avx512::has_bf16() && is_listed() && is_granted() && works_in_a_child())
}

/// Tiles and their bf16 products are listed, and the system saves them in context switches.
fn is_listed() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    // Configuration and data.
    const SAVED: u32 = 3 << 17;
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid_count(0, 0).eax < 7 || __cpuid_count(1, 0).ecx & OSXSAVE == 0 {
        return false;
    }
    if __cpuid_count(7, 0).edx & (BF16 | TILES) != BF16 | TILES {
        return false;
    }
    let saved: u32;
    // SAFETY: the processor has the instruction (OSXSAVE).
    unsafe {
        std::arch::asm!(
            "xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack, preserves_flags)
        );
    }
    saved & SAVED == SAVED
}

/// Asks Linux for the memory that tile data take in context switches, for all threads.
#[cfg(target_os = "linux")]
fn is_granted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XTILEDATA: libc::c_long = 18;
    // SAFETY: takes two numbers, and changes no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_granted() -> bool {
    false
}

/// One bf16 in all inputs, two in all weights: every sum of 32 columns is 64.
static INPUT: [BrainChunk; SIDE] = [const { BrainChunk([0x3F80; size_of::<BrainChunk>() / 2]) }; SIDE];
static PANEL: Panel = Panel([0x4000; STEP_BYTES / 2]);

#[repr(C, align(64))]
struct Panel([u16; STEP_BYTES / 2]);

/// Runs the product where a fault does no harm.
fn works_in_a_child() -> bool {
    // SAFETY: the child of a process with threads may only do what signal handlers may: it computes on static and
    // stack memory, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: listed and granted. If not, only the child dies of it.
        let right = unsafe { computes() };
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    if child < 0 {
        return false;
    }
    loop {
        let mut status = 0;
        // SAFETY: waits for our own child.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended == child {
            return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return false;
        }
    }
}

/// # Safety
/// The processor has AMX, else it faults.
unsafe fn computes() -> bool {
    let mut sums = [1.0_f32; SIDE * SIDE];
    let panel = (&raw const PANEL).cast::<u8>();
    let segment = Segment { input: INPUT.as_ptr().cast(), panels: [panel, panel], steps: 1 };
    // SAFETY: one tile each of inputs, weights and sums.
    unsafe {
        let unit = TileUnit::new();
        unit.accumulate(&[segment], 1, 1, Sums { start: sums.as_mut_ptr(), stride: SIDE, fresh: false });
    }
    sums.iter().all(|sum| sum.to_bits() == 65.0_f32.to_bits())
}
