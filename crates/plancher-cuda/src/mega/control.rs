//! The block of host memory through which host and running kernel speak: a request to stop, the report of a wait that
//! gave up, the ring of chosen tokens.

use std::task::Poll;

use super::report::Record;
use crate::{Device, PinnedBuffer, Result};

/// Tokens that the host may be behind.
pub(crate) const RING: usize = 1024;

/// Words of 8 bytes: the request.
const STOP: usize = 0;
/// Whether there is a report.
const REPORTED: usize = 1;
/// The report: 8 words of 4 bytes.
const RECORD: usize = 2;
/// The first entry of the ring.
const TOKENS: usize = 8;

/// The block.
#[derive(Debug)]
pub(crate) struct Control {
    words: PinnedBuffer<u64>,
}

impl Control {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self { words: PinnedBuffer::zeroed(device, TOKENS + RING)? })
    }

    /// The device's address.
    pub(crate) fn pointer(&self) -> u64 {
        self.words.device_pointer()
    }

    /// Forgets everything. The device must be idle.
    pub(crate) fn clear(&mut self) {
        self.words.as_mut_slice().fill(0);
    }

    /// Forgets request and report, not the tokens. No kernel may be running.
    pub(crate) fn clear_request(&mut self) {
        (0..TOKENS).for_each(|word| self.words.write(word, 0));
    }

    /// Asks the kernel to end after the token it is at.
    pub(crate) fn stop(&mut self) {
        self.words.write(STOP, 1);
    }

    /// Token number `number`, from 1 on, if it is there by now; `None` where no logit was a finite number.
    pub(crate) fn token(&self, number: u32) -> Poll<Option<u32>> {
        let entry = self.words.read(TOKENS + (number as usize).wrapping_sub(1) % RING);
        let token = entry as u32;
        if (entry >> 32) as u32 == number { Poll::Ready((token != u32::MAX).then_some(token)) } else { Poll::Pending }
    }

    /// The report, if a wait gave up.
    pub(crate) fn record(&self) -> Option<Record> {
        (self.words.read(REPORTED) != 0).then(|| {
            let halves = (RECORD..RECORD + 4).flat_map(|word| {
                let word = self.words.read(word);
                [word as u32, (word >> 32) as u32]
            });
            let mut record = [0; 8];
            record.iter_mut().zip(halves).for_each(|(word, half)| *word = half);
            Record::from(record)
        })
    }
}
