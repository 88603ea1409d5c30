//! The exchange's slots: apart from each other, within a copy, and aligned for the loads that read them.

use std::ops::Range;

use super::CheckError;
use super::accesses::{Edge, edges, range};
use crate::gpu::{COPIES, Plan};

pub(super) fn check(plan: &Plan) -> Result<(), CheckError> {
    let exchange = &plan.exchange;
    let mut slots: Vec<(Range<usize>, Edge)> = edges(plan).map(|edge| (range(plan, edge), edge)).collect();
    let error = |edge: Edge, range: &Range<usize>, problem: String| {
        Err(CheckError::Layout { slot: edge.to_string(), start: range.start, end: range.end, problem })
    };
    for (range, edge) in &slots {
        let alignment = edge.alignment();
        if !range.start.is_multiple_of(alignment) || !range.end.is_multiple_of(4) {
            return error(*edge, range, format!("are not aligned to {alignment}"));
        }
        if range.end > exchange.copy_bytes {
            return error(*edge, range, format!("lie beyond its {} bytes", exchange.copy_bytes));
        }
    }
    slots.sort_unstable_by_key(|(range, _)| (range.start, range.end));
    for pair in slots.windows(2) {
        if pair[1].0.start < pair[0].0.end {
            return error(pair[1].1, &pair[1].0, format!("overlap `{}`", pair[0].1));
        }
    }
    let (value, bound) = (exchange.copy_bytes.saturating_mul(COPIES), exchange.bytes);
    if value > bound {
        return Err(CheckError::Bound { what: "bytes of all copies", value, bound });
    }
    if !exchange.copy_bytes.is_multiple_of(16) {
        return Err(CheckError::Bound { what: "copy_bytes % 16", value: exchange.copy_bytes % 16, bound: 0 });
    }
    Ok(())
}
