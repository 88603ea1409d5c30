//! Plans for made-up devices, and their interpreters.

use plancher_model::{ModelConfig, Weights};
use plancher_program::gpu::{Element, Image, Interpreter, Plan, Schedule, Target};

pub fn target(multiprocessors: usize, element: Element) -> Target {
    Target { multiprocessors, shared_memory: 200 << 10, element, positions: 2048 }
}

pub fn plan(config: &ModelConfig, target: Target) -> Plan {
    Plan::unrestricted(config, target).unwrap_or_else(|e| panic!("{e}"))
}

pub fn interpreter<'a>(config: &'a ModelConfig, weights: &Weights, plan: &'a Plan) -> Interpreter<'a> {
    let image = Image::new(plan, weights).unwrap_or_else(|e| panic!("{e}"));
    Interpreter::new(config, weights, plan, image).unwrap_or_else(|e| panic!("{e}"))
}

/// Appends tokens; their logits.
pub fn append(interpreter: &mut Interpreter<'_>, tokens: &[u32], schedule: Schedule) -> Vec<f32> {
    let logits =
        tokens.iter().flat_map(|&token| interpreter.append(token, schedule).unwrap_or_else(|e| panic!("{e}")).to_vec());
    logits.collect()
}
