//! The arguments of a launch.

use std::ffi::c_void;

use bytemuck::Pod;

use super::TensorMap;
use crate::{DeviceBuffer, PinnedBuffer};

/// The most bytes that the parameters of a kernel have together.
const MOST: usize = 32_764;

/// 64 bytes on a 64-byte boundary: no argument needs more alignment (a tensor map needs just this).
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The arguments of a launch, in the kernel's order.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    lines: Vec<Line>,
    /// The line where each argument begins, and its bytes.
    arguments: Vec<(usize, usize)>,
}

impl Arguments {
    /// No arguments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value: a number, or a structure that the kernel takes by value, laid out as in C.
    #[must_use]
    pub fn value<T: Pod>(mut self, value: T) -> Self {
        let start = self.lines.len();
        for chunk in bytemuck::bytes_of(&value).chunks(64) {
            let mut line = Line([0; 64]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            self.lines.push(line);
        }
        self.arguments.push((start, size_of::<T>()));
        self
    }

    /// Adds the address of an array.
    #[must_use]
    pub fn buffer<T>(self, buffer: &DeviceBuffer<T>) -> Self {
        self.value(buffer.pointer())
    }

    /// Adds the device's address of an array of the host.
    #[must_use]
    pub fn pinned<T>(self, buffer: &PinnedBuffer<T>) -> Self {
        self.value(buffer.device_pointer())
    }

    /// Adds a tensor map, which the kernel takes by value.
    #[must_use]
    pub fn tensor_map(self, map: &TensorMap) -> Self {
        self.value(map.words())
    }

    /// What is wrong with these arguments for a kernel with parameters of these sizes.
    pub(super) fn problem(&self, parameters: &[usize]) -> Option<String> {
        if self.arguments.len() != parameters.len() {
            return Some(format!("it takes {} arguments and got {}", parameters.len(), self.arguments.len()));
        }
        let wrong = self.arguments.iter().zip(parameters).position(|((_, size), parameter)| size != parameter);
        if let Some(index) = wrong {
            let ((_, size), parameter) = (self.arguments[index], parameters[index]);
            return Some(format!("argument {index} has {size} bytes and its parameter {parameter}"));
        }
        let bytes: usize = parameters.iter().sum();
        (bytes > MOST).then(|| format!("its arguments have {bytes} bytes, and at most {MOST} are possible"))
    }

    /// Pointers to the arguments, as the driver wants them. They are good as long as `self` is not changed.
    pub(super) fn pointers(&self) -> Vec<*mut c_void> {
        let line = |&(start, _): &(usize, usize)| {
            // An argument without bytes may begin at the end.
            self.lines.as_ptr().wrapping_add(start).cast_mut().cast()
        };
        self.arguments.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_their_bytes_and_are_aligned() {
        let arguments = Arguments::new().value(7_u32).value([1_u64; 16]).value(-1_i8);
        let pointers = arguments.pointers();
        assert!(pointers.iter().all(|pointer| pointer.addr() % 64 == 0));
        // SAFETY: the pointers are to the values above.
        unsafe {
            assert_eq!(*pointers[0].cast::<u32>(), 7);
            assert_eq!(*pointers[1].cast::<[u64; 16]>(), [1; 16]);
            assert_eq!(*pointers[2].cast::<i8>(), -1);
        }
    }

    #[test]
    fn arguments_that_do_not_fit_the_kernel_are_refused() {
        let arguments = Arguments::new().value(7_u32).value(1_u64);
        assert_eq!(arguments.problem(&[4, 8]), None);
        assert_eq!(arguments.problem(&[4]).as_deref(), Some("it takes 1 arguments and got 2"));
        assert_eq!(arguments.problem(&[4, 4]).as_deref(), Some("argument 1 has 8 bytes and its parameter 4"));
        let large = (0..9).fold(Arguments::new(), |arguments, _| arguments.value([0_u32; 1024]));
        assert!(large.problem(&[4096; 9]).is_some_and(|problem| problem.contains("36864 bytes")));
    }
}
