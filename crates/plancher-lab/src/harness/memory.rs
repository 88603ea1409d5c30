//! The device's memory as the harness deals it out: every array lies between two guards of NaN bits that differ from place
//! to place, all in one allocation, so that writing outside an array is found out and (unless it is far outside) does not
//! end the process.

use plancher_cuda::{Device, DeviceBuffer};

use crate::{LabError, Result};

/// Bytes of the guard on each side of an array, at least.
pub(super) const GUARD: u64 = 256 << 10;
/// Arrays that are not shifted begin at multiples of this.
const ALIGNMENT: u64 = 4096;

/// One allocation, from which arrays are cut.
#[derive(Debug)]
pub(super) struct Arena {
    memory: DeviceBuffer<u8>,
}

/// An array between its guards. Addresses and sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    /// Where the guard before the array begins.
    pub(super) start: u64,
    /// Where the array begins.
    pub(super) pointer: u64,
    /// Its size.
    pub(super) bytes: u64,
    /// Where the guard after it ends.
    pub(super) end: u64,
}

impl View {
    /// Both guards: address and number of 2-byte words.
    pub(super) fn guards(&self) -> [(u64, u64); 2] {
        let after = self.pointer + self.bytes;
        [(self.start, (self.pointer - self.start) / 2), (after, (self.end - after) / 2)]
    }
}

/// Where arrays of these sizes go from `base` on, each shifted by some bytes from its boundary; and what is behind the last
/// one.
pub(super) fn place(base: u64, arrays: &[(u64, u64)]) -> Option<(Vec<View>, u64)> {
    let mut at = base;
    let mut views = Vec::new();
    for &(bytes, shift) in arrays {
        let pointer = at.checked_add(GUARD)?.checked_next_multiple_of(ALIGNMENT)?.checked_add(shift)?;
        let end = pointer.checked_add(bytes)?.checked_add(GUARD)?.checked_next_multiple_of(ALIGNMENT)?;
        views.push(View { start: at, pointer, bytes, end });
        at = end;
    }
    Some((views, at))
}

impl Arena {
    /// Allocates.
    pub(super) fn new(device: &Device, bytes: u64) -> Result<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self { memory: DeviceBuffer::uninitialized(device, bytes)? })
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    /// Cuts arrays of these sizes and shifts from the whole of it: what was cut before is no longer used.
    pub(super) fn cut(&self, arrays: &[(u64, u64)]) -> Result<Vec<View>> {
        let base = self.memory.pointer().next_multiple_of(ALIGNMENT);
        let limit = self.memory.pointer() + self.bytes();
        match place(base, arrays) {
            Some((views, end)) if end <= limit => Ok(views),
            _ => {
                let bytes: u64 = arrays.iter().map(|(bytes, _)| *bytes).sum();
                Err(LabError::Unsupported(format!(
                    "arrays of {bytes} bytes do not fit into the {} bytes that are set aside for them",
                    self.bytes()
                )))
            }
        }
    }
}

/// The size of an arena that takes so many arrays with so many bytes in all.
pub(super) const fn arena_bytes(arrays: u64, bytes: u64) -> u64 {
    bytes + arrays * (2 * GUARD + 3 * ALIGNMENT) + ALIGNMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_lie_between_guards_and_do_not_touch() {
        let arrays = [(1000, 0), (0, 4), (6, 2)];
        let (views, end) = place(8192, &arrays).expect("it fits");
        assert!(end <= 8192 + arena_bytes(3, 1006));
        for (view, (bytes, shift)) in views.iter().zip(arrays) {
            assert_eq!((view.pointer % ALIGNMENT, view.bytes), (shift, bytes));
            let [(before, words_before), (after, words_after)] = view.guards();
            assert_eq!((before, before + 2 * words_before), (view.start, view.pointer));
            assert_eq!((after, after + 2 * words_after), (view.pointer + bytes, view.end));
            assert!(2 * words_before >= GUARD && 2 * words_after >= GUARD);
        }
        assert!(views.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(place(u64::MAX - 5, &[(1, 0)]), None);
    }
}
