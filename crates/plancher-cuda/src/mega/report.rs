//! What the kernel reports when a wait gives up, and the error that it becomes: who waited, at which instruction, for
//! what.

use plancher_program::gpu::{Exchange, Instruction, Plan, Product, Slot};

use crate::CudaError;

/// The numbers that a wait which gave up left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The block.
    pub(super) worker: u32,
    /// The warp of it.
    pub(super) warp: u32,
    /// `enum wait_kind` of the kernel.
    pub(super) kind: u32,
    /// The token of the launch, from 0 on.
    pub(super) step: u32,
    /// The instruction of the worker's list.
    pub(super) instruction: u32,
    /// More about what was waited for; what it is depends on the kind.
    pub(super) detail: u32,
    /// How often it was looked at.
    pub(super) polls: u32,
}

impl From<[u32; 8]> for Record {
    fn from([worker, warp, kind, step, instruction, detail, polls, _]: [u32; 8]) -> Self {
        Self { worker, warp, kind, step, instruction, detail, polls }
    }
}

impl Record {
    /// The error, by the names of the plan that ran.
    pub(super) fn error(&self, plan: &Plan) -> CudaError {
        let instruction =
            plan.workers.get(self.worker as usize).and_then(|list| list.instructions.get(self.instruction as usize));
        let at = match instruction {
            Some(Instruction { operation, layer, .. }) => format!("{operation} of layer {layer}"),
            None => "no instruction".to_owned(),
        };
        let waiter = format!(
            "warp {} ({}) of worker {}, at instruction {} ({at}) of token {} of the launch,",
            self.warp,
            role(self.warp),
            self.worker,
            self.instruction,
            self.step,
        );
        CudaError::Stalled { waiter, awaited: self.awaited(plan), polls: self.polls }
    }

    /// What was waited for.
    fn awaited(&self, plan: &Plan) -> String {
        let detail = self.detail;
        match self.kind {
            1 | 5 => words(plan, detail as usize),
            2 => format!("slot {detail} of its ring to be filled from memory"),
            3 => "its consumer warps' sums".to_owned(),
            4 => "its finalizer to have read the sums before".to_owned(),
            6 => format!("the partial results of split {detail} of attention"),
            7 => format!("{detail} arrivals of {} workers", plan.workers.len()),
            8 => format!("the candidates for the next token of worker {detail} and those that follow"),
            9 => "worker 0's word on whether to stop".to_owned(),
            10 => "other workers while a token was drawn".to_owned(),
            kind => format!("something that the host does not know (kind {kind}, {detail})"),
        }
    }
}

/// What a warp does.
fn role(warp: u32) -> &'static str {
    match warp {
        0..8 => "consumer",
        8 => "finalizer",
        _ => "producer",
    }
}

/// The words from number `word` of the exchange on, and who writes the first of them.
fn words(plan: &Plan, word: usize) -> String {
    let Some((layer, slot, within)) = locate(&plan.exchange, plan.shape.layers, word * 4) else {
        return format!("word {word} of the exchange");
    };
    let element = within / 2;
    let (name, writer) = match slot {
        Slot::Attention => ("the residual stream before attention", plan.residual().owner(element)),
        Slot::QueryKeyValue => {
            ("queries, keys and values", plan.product(Product::QueryKeyValue).partition.owner(element))
        }
        Slot::Attended => ("attention's outputs", plan.combine.owner(element)),
        Slot::FeedForward => ("the residual stream before feed-forward", plan.residual().owner(element)),
        Slot::Gated => ("the gated activations", plan.product(Product::GateUp).partition.owner(element)),
        Slot::PartialOutputs | Slot::PartialSums => ("partial results of attention", None),
    };
    let writer = writer.map_or_else(String::new, |worker| format!(", the first of them from worker {worker}"));
    format!("the words from {element} on of {name} in layer {layer}{writer}")
}

/// Layer, slot and byte in it of a byte of the exchange.
fn locate(exchange: &Exchange, layers: usize, byte: usize) -> Option<(usize, Slot, usize)> {
    const SLOTS: [Slot; 7] = [
        Slot::Attention,
        Slot::QueryKeyValue,
        Slot::Attended,
        Slot::FeedForward,
        Slot::Gated,
        Slot::PartialOutputs,
        Slot::PartialSums,
    ];
    let byte = byte % exchange.copy_bytes.max(1);
    let layer = byte / exchange.layer_bytes.max(1);
    let slots = match layer {
        layer if layer < layers => &SLOTS[..],
        layer if layer == layers => &SLOTS[..1],
        _ => return None,
    };
    let found = slots.iter().map(|&slot| (slot, exchange.slot(layer, slot)));
    found.filter(|(_, range)| range.contains(&byte)).map(|(slot, range)| (layer, slot, byte - range.start)).next()
}

#[cfg(test)]
mod tests {
    use plancher_program::gpu::{Operation, Target};

    use super::super::kernel::Sizes;
    use super::*;

    #[test]
    fn a_record_becomes_who_waited_for_what() {
        let sizes = Sizes { layers: 2, hidden: 72, heads: (8, 1), head_dim: 16, feed_forward: 200, vocab: 515 };
        let plan = Plan::new(&sizes.config(), Target { multiprocessors: 7, ..Target::h200(64) }).expect("a plan");
        let (worker, list) = plan.workers.iter().enumerate().next_back().expect("workers");
        let is_it = |instruction: &Instruction| instruction.operation == Operation::Output && instruction.layer == 1;
        let instruction = list.instructions.iter().position(is_it).expect("every worker has rows") as u32;
        // The sixth word of the slot, in the second copy.
        let word = (plan.exchange.copy_bytes + plan.exchange.slot(1, Slot::Attended).start) / 4 + 5;
        let text = |kind, warp, detail: usize| {
            let worker = worker as u32;
            Record::from([worker, warp, kind, 3, instruction, detail as u32, 99, 0]).error(&plan).to_string()
        };
        let owner = plan.combine.owner(10).expect("of an output");
        assert_eq!(
            text(1, 2, word),
            format!(
                "the megakernel gave up: warp 2 (consumer) of worker {worker}, at instruction {instruction} (output of layer 1) \
                 of token 3 of the launch, looked 99 times for the words from 10 on of attention's outputs in layer 1, the \
                 first of them from worker {owner}"
            )
        );
        // Where there is no such word, worker or kind, as after a fault, it is still one line.
        let (head, owner) =
            (plan.exchange.slot(2, Slot::Attention).start / 4, plan.residual().owner(0).expect("a row"));
        let first = format!("the residual stream before attention in layer 2, the first of them from worker {owner}");
        assert!(text(1, 0, head).ends_with(&first));
        assert!(text(1, 0, plan.exchange.candidates / 4).contains(&format!("word {}", plan.exchange.candidates / 4)));
        assert!(text(3, 8, 0).contains("(finalizer)") && text(2, 9, 4).contains("(producer)"));
        assert!(text(77, 9, 1).ends_with("something that the host does not know (kind 77, 1)"));
        let nobody = Record::from([u32::MAX; 8]).error(&plan).to_string();
        assert!(nobody.contains("(no instruction)") && !nobody.contains('\n'), "{nobody}");
    }
}
