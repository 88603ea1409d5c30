//! What tensor parallelism adds: two all-reduces a layer, each with a latency and a bandwidth term.

use crate::error::{Result, product};
use crate::{FloorError, Hardware, ModelShape};

/// A line of communication.
#[derive(Clone, Debug, PartialEq)]
pub struct Communication {
    /// What it is.
    pub name: &'static str,
    /// Bytes that one device sends; 0 for a latency term.
    pub bytes: u128,
    /// The least time of the line.
    pub seconds: f64,
    /// How the seconds came about.
    pub formula: String,
}

/// The all-reduces of one pass of `tokens` tokens over `devices` devices: after attention and after the
/// feed-forward part of each layer the partial sums of the residual stream, `tokens × hidden_size` in bf16.
///
/// Bandwidth term: each device sends `2 (n − 1) / n` times those bytes (reduce-scatter and all-gather). Latency
/// term: two hops, which is the least that this needs. Multicast and reduction inside a switch would halve the
/// first; they are not counted.
///
/// # Errors
/// When the hardware's link is not known or a product does not fit in 128 bits.
pub(crate) fn layer_all_reduces(
    shape: &ModelShape,
    hardware: &Hardware,
    tokens: u64,
    devices: u64,
) -> Result<Vec<Communication>> {
    if devices == 1 {
        return Ok(Vec::new());
    }
    let Some(link) = &hardware.link else {
        return Err(FloorError::invalid(
            "tensor parallel",
            format!("`{devices}` devices: no link between devices is known for `{}`", hardware.name),
        ));
    };
    let count = 2 * shape.layers.len();
    let sums = product("all-reduce bytes", [2, shape.hidden_size.into(), tokens.into(), count as u128])?;
    let bytes = product("all-reduce bytes", [sums, 2, u128::from(devices - 1)])?.div_ceil(devices.into());
    Ok(vec![
        Communication {
            name: "all-reduce latency",
            bytes: 0,
            seconds: count as f64 * 2.0 * link.latency,
            formula: format!("{count} all-reduces × 2 hops × {:.2} us", link.latency * 1e6),
        },
        Communication {
            name: "all-reduce bandwidth",
            bytes,
            seconds: bytes as f64 / link.bandwidth,
            formula: format!(
                "2 × ({devices} − 1) / {devices} × {sums} B = {bytes} B over {:.0} GB/s",
                link.bandwidth / 1e9
            ),
        },
    ])
}
