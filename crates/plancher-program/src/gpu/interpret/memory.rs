//! Stores on their way: what a worker has written reaches the others later, and not in the order in which it was written, but
//! for stores to one word. Only the worker's arrival comes after all that it wrote before: it is a release, and the others
//! acquire it.

use std::collections::VecDeque;

use super::fault::Fault;
use super::machine::{Key, Seat, Wait};
use crate::gpu::SENTINEL;

/// Something that a finalizer has done to memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) change: Change,
    /// Step and instruction of who did it.
    pub(super) place: (usize, usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A word, which must be clear, is written.
    Publish { word: usize, value: u32 },
    /// Two words that are one on the device, of which the second tells whether it is clear.
    PublishWide { word: usize, value: u64 },
    /// A word, which must have been written, is cleared.
    Clear { word: usize },
    /// The same of two words that are one on the device.
    ClearWide { word: usize },
    /// The worker has done with a step.
    Arrive,
}

impl Change {
    /// The word that tells whether it is clear.
    fn word(self) -> Option<usize> {
        match self {
            Self::Publish { word, .. } | Self::Clear { word } => Some(word),
            Self::PublishWide { word, .. } | Self::ClearWide { word } => Some(word + 1),
            Self::Arrive => None,
        }
    }

    fn publishes(self) -> bool {
        matches!(self, Self::Publish { .. } | Self::PublishWide { .. })
    }
}

/// Lets the stores of a worker arrive, one after the other.
pub(super) async fn run(seat: Seat<'_>) {
    loop {
        seat.at(0, 0);
        seat.wait(Wait::Stores).await;
        let store = next(&seat);
        if let Err(fault) = apply(&seat, store) {
            seat.fail(fault).await;
        }
        if seat.machine.scheduler.borrow_mut().stores_rest() {
            if seat.machine.scheduler.borrow().holds_stores() {
                // Those that nobody waits for are held back longer.
                let is_awaited = awaited(&seat.own().stores.borrow()).is_some();
                seat.at(usize::from(!is_awaited), 0);
            }
            seat.turn().await;
        }
    }
}

/// Takes out the store that arrives next.
fn next(seat: &Seat<'_>) -> Store {
    let mut stores = seat.own().stores.borrow_mut();
    let arrival = || stores.iter().position(|store| matches!(store.change, Change::Arrive));
    let picked = seat.machine.scheduler.borrow_mut().pick(stores.len(), || awaited(&stores).or_else(arrival));
    // Stores to one word stay in order, and an arrival comes after everything before it, but not before what is behind.
    let place = match stores[picked].change.word() {
        Some(word) => stores.iter().position(|store| store.change.word() == Some(word)).unwrap_or(picked),
        None => 0,
    };
    stores.remove(place).unwrap_or_else(|| unreachable!("there is one"))
}

/// The first store that somebody may wait for: one that publishes a word of which nothing older is on its way.
fn awaited(stores: &VecDeque<Store>) -> Option<usize> {
    let first = |change: Change| stores.iter().position(|store| store.change.word() == change.word());
    stores.iter().enumerate().position(|(place, store)| store.change.publishes() && first(store.change) == Some(place))
}

fn apply(seat: &Seat<'_>, store: Store) -> Result<(), Fault> {
    let machine = seat.machine;
    let Some(word) = store.change.word() else {
        machine.arrivals.set(machine.arrivals.get() + 1);
        machine.notify(Key::Arrivals);
        return Ok(());
    };
    let is_clear = machine.word(word) == SENTINEL;
    let publishes = store.change.publishes();
    if publishes != is_clear {
        let (by, word) = (seat.who(store.place), seat.name(word));
        return Err(if publishes { Fault::Overwritten { by, word } } else { Fault::ClearedTwice { by, word } });
    }
    match store.change {
        Change::Publish { word, value } => machine.set(word, value),
        Change::PublishWide { word, value } => {
            machine.set(word, value as u32);
            machine.set(word + 1, (value >> 32) as u32);
        }
        Change::Clear { word } => machine.set(word, SENTINEL),
        Change::ClearWide { word } => {
            machine.set(word, SENTINEL);
            machine.set(word + 1, SENTINEL);
        }
        Change::Arrive => {}
    }
    if publishes {
        machine.notify(Key::Word(word));
    }
    Ok(())
}
