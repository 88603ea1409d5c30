//! A model of the bytes of activations: what separate kernels move beside weights and KV. A fused kernel can
//! avoid most of it, so that it stands apart from the floor.

use crate::error::{Result, product, sum};
use crate::pass::{Regime, Setting};
use crate::shape::part_of;
use crate::{Class, ModelShape};

/// Every matrix reads its input and writes its output once for every token, in bf16; the embedding row is read;
/// the new KV entries are written (in prefill they are counted with the KV already).
///
/// # Errors
/// When a product does not fit in 128 bits or the devices do not divide the model.
pub fn bytes(shape: &ModelShape, regime: Regime, setting: Setting) -> Result<u128> {
    let mut elements = product("activation bytes", [shape.hidden_size.into(), regime.tokens().into()])?;
    for weight in shape.weights().filter(|weight| weight.is_matmul()) {
        let tokens = match (weight.class, regime) {
            (Class::Head, Regime::Prefill { batch, all_logits: false, .. }) => batch,
            _ => regime.tokens(),
        };
        let copies = weight.experts.map_or(1, |experts| experts.active);
        let (held, of) = weight.shard.part(setting.tensor_parallel)?;
        let width = u128::from(weight.rows) + u128::from(weight.columns);
        let all = product("activation bytes", [width, tokens.into(), copies.into()])?;
        // One side is cut between devices, the other is whole: the cut side is taken for both.
        elements = sum("activation bytes", [elements, part_of(all, held, of)?])?;
    }
    let kv_written = match regime {
        Regime::Decode { .. } => product("KV bytes", [shape.kv_bytes_per_token(setting.kv)?, regime.tokens().into()])?
            .div_ceil(setting.tensor_parallel.into()),
        Regime::Prefill { .. } => 0,
    };
    sum("activation bytes", [product("activation bytes", [2, elements])?, kv_written])
}
