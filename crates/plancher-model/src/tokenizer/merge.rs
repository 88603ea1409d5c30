//! The merge loop that BPE and SentencePiece tokenisation share: symbols in a linked list, candidate pairs in
//! a heap, the best pair merged until none is left. It takes O(n log n) steps for n symbols, however long the
//! text without a break is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// End of the linked list.
const NONE: u32 = u32::MAX;

/// A piece of the text that has not been merged away: `text[start..start + length]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// Byte offset in the text.
    pub(super) start: usize,
    /// Bytes; 0 once merged into its left neighbour.
    pub(super) length: usize,
    /// The token, if the piece is one.
    pub(super) id: Option<u32>,
    previous: u32,
    next: u32,
}

/// What two neighbours would become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    /// Lower is merged first; of equals, the leftmost.
    pub(super) rank: u32,
    /// The token they form.
    pub(super) id: u32,
}

/// Links pieces `(length in bytes, token)` that cover a text from its start.
pub(super) fn link(pieces: impl Iterator<Item = (usize, Option<u32>)>) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::new();
    let mut start = 0;
    for (length, id) in pieces {
        let index = symbols.len() as u32;
        symbols.push(Symbol { start, length, id, previous: index.wrapping_sub(1), next: index + 1 });
        start += length;
    }
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

/// A pair in the heap: rank, left index, right index, bytes of both when it was found, token. A pair whose
/// bytes have changed since has been overtaken by another merge.
type Candidate = Reverse<(u32, u32, u32, usize, u32)>;

/// Merges the best pair until `find` knows no pair; merged-away symbols are left with length 0.
pub(super) fn merge_all(symbols: &mut [Symbol], mut find: impl FnMut(&Symbol, &Symbol) -> Option<Merge>) {
    let mut heap: BinaryHeap<Candidate> = BinaryHeap::new();
    let mut consider = |heap: &mut BinaryHeap<Candidate>, symbols: &[Symbol], left: u32, right: u32| {
        if left == NONE || right == NONE {
            return;
        }
        let (a, b) = (&symbols[left as usize], &symbols[right as usize]);
        if let Some(merge) = find(a, b) {
            heap.push(Reverse((merge.rank, left, right, a.length + b.length, merge.id)));
        }
    };
    for right in 1..symbols.len() as u32 {
        consider(&mut heap, symbols, right - 1, right);
    }
    while let Some(Reverse((_, left, right, bytes, id))) = heap.pop() {
        let (a, b) = (symbols[left as usize], symbols[right as usize]);
        if a.length == 0 || b.length == 0 || a.length + b.length != bytes {
            continue;
        }
        symbols[left as usize] = Symbol { length: bytes, id: Some(id), next: b.next, ..a };
        symbols[right as usize].length = 0;
        if b.next != NONE {
            symbols[b.next as usize].previous = left;
        }
        consider(&mut heap, symbols, a.previous, left);
        consider(&mut heap, symbols, left, b.next);
    }
}
