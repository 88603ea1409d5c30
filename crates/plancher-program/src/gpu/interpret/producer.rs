//! The producer: fills the ring with what the worker's instructions will consume, strictly in order and as far ahead as the
//! ring reaches, over steps, too. Copies land later than they are asked for.

use std::collections::VecDeque;

use super::machine::{Seat, Wait};
use crate::gpu::{Instruction, Operation, PAGE, STAGE_BYTES};

/// Where a stage comes from.
enum Source {
    /// The worker's stream.
    Stream(usize),
    /// Pages of a head.
    Pages { layer: usize, kv_head: usize, pages: Vec<usize> },
}

struct Producer<'a> {
    seat: Seat<'a>,
    /// Stages asked for.
    asked: usize,
    under_way: VecDeque<(usize, Source)>,
}

pub(super) async fn run(seat: Seat<'_>) {
    let machine = seat.machine;
    let mut producer = Producer { seat, asked: 0, under_way: VecDeque::new() };
    for step in 0..machine.task.steps {
        let position = machine.task.position + step;
        let mut place = 0;
        for (index, instruction) in machine.model.lists[seat.worker].iter().enumerate() {
            seat.at(step, index);
            if instruction.operation == Operation::Attend {
                producer.pages(instruction, position).await;
            }
            for _ in 0..instruction.stages {
                producer.copy(Source::Stream(place)).await;
                place += 1;
            }
        }
    }
    while producer.land() {
        seat.turn().await;
    }
}

/// The pages that reach an attention instruction through the ring, a stage at a time: those of its split of which anything
/// is older than the step.
pub(super) fn page_stages(seat: &Seat<'_>, instruction: &Instruction, position: usize) -> Vec<Vec<usize>> {
    let model = seat.machine.model;
    let split = instruction.count as usize;
    let first = model.window_start(usize::from(instruction.layer), position) / PAGE;
    let attention = &model.plan.attention;
    let pages = (first..position.div_ceil(PAGE)).filter(|&page| attention.split_of_page(page) == split);
    let pages: Vec<_> = pages.collect();
    pages.chunks(pages_per_stage(model.plan.shape.head_dim)).map(<[usize]>::to_vec).collect()
}

fn pages_per_stage(head_dim: usize) -> usize {
    (STAGE_BYTES / page_bytes(head_dim)).clamp(1, 8)
}

/// Of one head.
pub(super) fn page_bytes(head_dim: usize) -> usize {
    2 * PAGE * head_dim * 2
}

impl Producer<'_> {
    async fn pages(&mut self, instruction: &Instruction, position: usize) {
        let kv_head = self.seat.machine.model.plan.attention.kv_head(instruction.first as usize);
        let layer = usize::from(instruction.layer);
        for pages in page_stages(&self.seat, instruction, position) {
            // The page of the newest position so far may lack it still.
            if pages.contains(&((position - 1) / PAGE)) {
                self.wait(Wait::Appended { layer, kv_head, positions: position }).await;
            }
            self.copy(Source::Pages { layer, kv_head, pages }).await;
        }
    }

    /// Asks for the next stage.
    async fn copy(&mut self, source: Source) {
        self.wait(Wait::Free(self.asked)).await;
        self.seat.own().begin_copy(self.asked);
        self.under_way.push_back((self.asked, source));
        self.asked += 1;
        self.seat.turn().await;
        while !self.under_way.is_empty() && self.seat.machine.scheduler.borrow_mut().lands_now() {
            self.land();
            self.seat.turn().await;
        }
    }

    /// While the producer cannot ask for more, what is under way lands.
    async fn wait(&mut self, wait: Wait) {
        while !self.seat.has_come(wait) && self.land() {
            self.seat.turn().await;
        }
        self.seat.wait(wait).await;
    }

    /// The oldest copy under way lands, if there is one.
    fn land(&mut self) -> bool {
        let Some((stage, source)) = self.under_way.pop_front() else { return false };
        let (machine, own) = (self.seat.machine, self.seat.own());
        match source {
            Source::Stream(place) => {
                let start = (place * machine.workers.len() + self.seat.worker) * STAGE_BYTES;
                own.land(stage, &machine.model.stream[start..start + STAGE_BYTES]);
            }
            Source::Pages { layer, kv_head, pages } => {
                let cache = machine.cache.borrow();
                let elements = pages.iter().flat_map(|&page| cache.page(layer, kv_head, page));
                let bytes: Vec<u8> = elements.flat_map(|element| element.to_le_bytes()).collect();
                own.land(stage, &bytes);
            }
        }
        self.seat.notify();
        true
    }
}
