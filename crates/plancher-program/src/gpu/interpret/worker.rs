//! What the warps of one worker share: the ring, the buffers of partial sums, and how far each of them is.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::memory::Store;
use crate::gpu::{CONSUMERS, STAGE_BYTES};

/// What a consumer leaves for the finalizer: partial sums of a tile, or of attention.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    pub(super) values: Vec<f32>,
    /// Of the consumer's part of a normed input.
    pub(super) squares: f32,
}

/// Adds what all consumers have, in pairs, pairs of pairs and so on.
pub(super) fn add_up(x: [f32; CONSUMERS]) -> f32 {
    ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
}

pub(super) struct Worker {
    ring: Vec<RefCell<Vec<u8>>>,
    /// The stage that lies in each place of the ring, once it has landed.
    landed: Vec<Cell<Option<usize>>>,
    /// Stages that each consumer is done with.
    pub(super) used: [Cell<usize>; CONSUMERS],
    buffers: RefCell<[[Chunk; CONSUMERS]; 2]>,
    /// Chunks that each consumer has left, and that the finalizer has taken.
    pub(super) delivered: [Cell<usize>; CONSUMERS],
    pub(super) taken: Cell<usize>,
    squares: RefCell<[[f32; CONSUMERS]; 2]>,
    /// Branches of which each consumer has left its sum of squares.
    pub(super) squared: [Cell<usize>; CONSUMERS],
    /// Steps whose token is known.
    pub(super) begun: Cell<usize>,
    pub(super) token: Cell<u32>,
    /// What the finalizer has written and others do not see yet.
    pub(super) stores: RefCell<VecDeque<Store>>,
}

impl Worker {
    pub(super) fn new(stages: usize) -> Self {
        Self {
            ring: (0..stages).map(|_| RefCell::new(vec![0; STAGE_BYTES])).collect(),
            landed: vec![Cell::new(None); stages],
            used: Default::default(),
            buffers: RefCell::default(),
            delivered: Default::default(),
            taken: Cell::new(0),
            squares: RefCell::default(),
            squared: Default::default(),
            begun: Cell::new(0),
            token: Cell::new(0),
            stores: RefCell::default(),
        }
    }

    /// Of the ring.
    pub(super) fn stages(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn has_landed(&self, stage: usize) -> bool {
        self.landed[stage % self.stages()].get() == Some(stage)
    }

    /// A copy into the ring is under way: its place holds nothing of use until it has landed.
    pub(super) fn begin_copy(&self, stage: usize) {
        self.landed[stage % self.stages()].set(None);
    }

    pub(super) fn land(&self, stage: usize, bytes: &[u8]) {
        self.ring[stage % self.stages()].borrow_mut()[..bytes.len()].copy_from_slice(bytes);
        self.landed[stage % self.stages()].set(Some(stage));
    }

    /// Looks at a stage that has landed.
    pub(super) fn with_stage<T>(&self, stage: usize, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&self.ring[stage % self.stages()].borrow())
    }

    pub(super) fn deliver(&self, consumer: usize, chunk: Chunk) {
        let number = self.delivered[consumer].get();
        self.buffers.borrow_mut()[number % 2][consumer] = chunk;
        self.delivered[consumer].set(number + 1);
    }

    pub(super) fn take(&self) -> [Chunk; CONSUMERS] {
        let number = self.taken.get();
        let chunks = std::mem::take(&mut self.buffers.borrow_mut()[number % 2]);
        self.taken.set(number + 1);
        chunks
    }

    pub(super) fn leave_squares(&self, consumer: usize, squares: f32) {
        let edge = self.squared[consumer].get();
        self.squares.borrow_mut()[edge % 2][consumer] = squares;
        self.squared[consumer].set(edge + 1);
    }

    /// The sum of squares of a branch over all consumers.
    pub(super) fn squares(&self, edge: usize) -> f32 {
        add_up(self.squares.borrow()[edge % 2])
    }
}
