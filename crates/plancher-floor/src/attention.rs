//! What a layer keeps of the past and what it computes against it: grouped heads with or without a window,
//! multi-head latent attention, or a recurrent state of constant size.

use crate::error::{Result, product};
use crate::shape::{Shard, part_of};
use crate::{FloorError, Format};

/// The attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Multi-head, grouped-query or multi-query attention.
    Heads {
        /// Query heads.
        n_heads: u64,
        /// Key and value heads.
        n_kv_heads: u64,
        /// Elements of a query and key head.
        head_dim: u64,
        /// Elements of a value head.
        value_dim: u64,
        /// Only the last `window` tokens are kept and read.
        window: Option<u64>,
    },
    /// Multi-head latent attention (DeepSeek): a compressed row and a rotary part per token for all heads.
    Latent {
        /// Query heads.
        n_heads: u64,
        /// Elements of the compressed row (`kv_lora_rank`).
        kv_rank: u64,
        /// Elements of the shared rotary key.
        rope_dim: u64,
        /// Elements of a head's key that carry no position.
        nope_dim: u64,
        /// Elements of a value head.
        value_dim: u64,
    },
    /// A linear-attention or state-space layer: the state does not grow with the context.
    Recurrent {
        /// Heads that the state is cut into.
        n_heads: u64,
        /// f32 elements of the state.
        state_elements: u64,
        /// FLOP that one token costs against the state.
        flops_per_token: u64,
    },
}

impl Attention {
    /// How many of `context` tokens are read.
    #[must_use]
    pub fn visible(&self, context: u64) -> u64 {
        match *self {
            Self::Heads { window, .. } => window.map_or(context, |window| context.min(window)),
            Self::Latent { .. } => context,
            Self::Recurrent { .. } => 0,
        }
    }

    /// KV elements that one token adds: `n_kv_heads · (head_dim + value_dim)`, or `kv_rank + rope_dim`.
    ///
    /// # Errors
    /// When the product does not fit in 128 bits.
    pub fn kv_elements_per_token(&self) -> Result<u128> {
        match *self {
            Self::Heads { n_kv_heads, head_dim, value_dim, .. } => {
                product("KV elements", [n_kv_heads.into(), u128::from(head_dim) + u128::from(value_dim)])
            }
            Self::Latent { kv_rank, rope_dim, .. } => Ok(u128::from(kv_rank) + u128::from(rope_dim)),
            Self::Recurrent { .. } => Ok(0),
        }
    }

    /// Bytes that one of `devices` devices keeps and reads of one sequence of `context` tokens. A latent row
    /// serves all heads, so every device holds it.
    ///
    /// # Errors
    /// When the product does not fit in 128 bits or the heads cannot be divided.
    pub fn kv_bytes(&self, context: u64, format: Format, devices: u64) -> Result<u128> {
        let elements = product("KV bytes", [self.kv_elements_per_token()?, self.visible(context).into()])?;
        match *self {
            Self::Heads { n_kv_heads, .. } => {
                let (held, of) = Shard::KvHeads(n_kv_heads).part(devices)?;
                format.bytes(part_of(elements, held, of)?)
            }
            Self::Latent { .. } => format.bytes(elements),
            Self::Recurrent { n_heads, state_elements, .. } => {
                let (held, of) = Shard::Heads(n_heads).part(devices)?;
                Format::F32.bytes(part_of(state_elements.into(), held, of)?)
            }
        }
    }

    /// FLOP of one query token against one cached token, over the heads that one of `devices` devices has.
    /// `compressed`: latent attention works on the cached rows themselves (decode) instead of expanding them.
    fn flops_per_pair(&self, devices: u64, compressed: bool) -> Result<u128> {
        let (n_heads, width) = match *self {
            Self::Heads { n_heads, head_dim, value_dim, .. } => (n_heads, u128::from(head_dim) + u128::from(value_dim)),
            Self::Latent { n_heads, kv_rank, rope_dim, .. } if compressed => {
                (n_heads, 2 * u128::from(kv_rank) + u128::from(rope_dim))
            }
            Self::Latent { n_heads, rope_dim, nope_dim, value_dim, .. } => {
                (n_heads, u128::from(rope_dim) + u128::from(nope_dim) + u128::from(value_dim))
            }
            Self::Recurrent { .. } => return Ok(0),
        };
        let (held, _) = Shard::Heads(n_heads).part(devices)?;
        product("attention FLOP", [2, held.into(), width])
    }

    fn recurrent_flops(&self, tokens: u64, devices: u64) -> Result<u128> {
        let Self::Recurrent { n_heads, flops_per_token, .. } = *self else { return Ok(0) };
        let (held, of) = Shard::Heads(n_heads).part(devices)?;
        part_of(product("attention FLOP", [flops_per_token.into(), tokens.into()])?, held, of)
    }

    /// FLOP of `tokens` new tokens of one sequence that each see `context` tokens:
    /// `4 · heads · head_dim · context` a token.
    ///
    /// # Errors
    /// When the product does not fit in 128 bits or the heads cannot be divided.
    pub fn decode_flops(&self, tokens: u64, context: u64, devices: u64) -> Result<u128> {
        let pairs = product("attention FLOP", [tokens.into(), self.visible(context).into()])?;
        let against_cache = product("attention FLOP", [self.flops_per_pair(devices, true)?, pairs])?;
        against_cache.checked_add(self.recurrent_flops(tokens, devices)?).ok_or(FloorError::Overflow("attention FLOP"))
    }

    /// FLOP of a causal pass over one sequence of `tokens` tokens: a token sees half of them on average, and no
    /// more than its window.
    ///
    /// # Errors
    /// When the product does not fit in 128 bits or the heads cannot be divided.
    pub fn causal_flops(&self, tokens: u64, devices: u64) -> Result<u128> {
        let visible = u128::from(self.visible(tokens));
        // Twice the pairs: a triangle of `visible` tokens until the window is full, then a band.
        let band = 2 * u128::from(tokens) - visible;
        let against_cache = product("attention FLOP", [self.flops_per_pair(devices, false)?, visible, band])? / 2;
        against_cache.checked_add(self.recurrent_flops(tokens, devices)?).ok_or(FloorError::Overflow("attention FLOP"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_8B: Attention =
        Attention::Heads { n_heads: 32, n_kv_heads: 8, head_dim: 128, value_dim: 128, window: None };
    const DEEPSEEK_V3: Attention =
        Attention::Latent { n_heads: 128, kv_rank: 512, rope_dim: 64, nope_dim: 128, value_dim: 128 };

    #[test]
    fn a_layer_of_llama_8b_keeps_4096_bytes_a_token() {
        assert_eq!(LLAMA_8B.kv_bytes(1, Format::Bf16, 1).unwrap(), 4096);
        assert_eq!(LLAMA_8B.kv_bytes(1000, Format::Fp8, 1).unwrap(), 2_048_000);
    }

    #[test]
    fn kv_heads_are_replicated_once_there_are_more_devices_than_heads() {
        let bytes: Vec<u128> =
            [1, 2, 8, 16, 32].map(|tp| LLAMA_8B.kv_bytes(1, Format::Bf16, tp).unwrap()).into_iter().collect();
        assert_eq!(bytes, [4096, 2048, 512, 512, 512]);
        assert!(LLAMA_8B.kv_bytes(1, Format::Bf16, 3).is_err());
    }

    #[test]
    fn latent_attention_keeps_rank_plus_rope_and_every_device_holds_it() {
        for devices in [1, 8] {
            assert_eq!(DEEPSEEK_V3.kv_bytes(1, Format::Bf16, devices).unwrap(), 2 * (512 + 64));
        }
    }

    #[test]
    fn a_decoded_token_costs_four_flop_per_head_element_and_context_token() {
        assert_eq!(LLAMA_8B.decode_flops(1, 1000, 1).unwrap(), 4 * 32 * 128 * 1000);
        assert_eq!(LLAMA_8B.decode_flops(3, 1000, 4).unwrap(), 3 * 4 * 8 * 128 * 1000);
        assert_eq!(DEEPSEEK_V3.decode_flops(1, 10, 1).unwrap(), 2 * 128 * (2 * 512 + 64) * 10);
    }

    #[test]
    fn a_causal_pass_averages_half_the_context_and_stops_at_the_window() {
        assert_eq!(LLAMA_8B.causal_flops(2048, 1).unwrap(), 4 * 32 * 128 * 2048 * 2048 / 2);
        let Attention::Heads { n_heads, n_kv_heads, head_dim, value_dim, .. } = LLAMA_8B else { unreachable!() };
        let windowed = Attention::Heads { n_heads, n_kv_heads, head_dim, value_dim, window: Some(100) };
        // 100 tokens of a growing triangle, 900 of a full band.
        assert_eq!(windowed.causal_flops(1000, 1).unwrap(), 4 * 32 * 128 * (5000 + 900 * 100));
        assert_eq!(windowed.kv_bytes(1000, Format::Bf16, 1).unwrap(), 100 * 4096);
        assert_eq!(windowed.visible(40), 40);
        assert_eq!(DEEPSEEK_V3.causal_flops(10, 1).unwrap(), 2 * 128 * (64 + 128 + 128) * 50);
    }

    #[test]
    fn a_recurrent_state_does_not_grow() {
        let state = Attention::Recurrent { n_heads: 32, state_elements: 1 << 19, flops_per_token: 3 << 20 };
        assert_eq!(state.kv_bytes(1, Format::Bf16, 1).unwrap(), 2 << 20);
        assert_eq!(state.kv_bytes(1 << 20, Format::Fp8, 2).unwrap(), 1 << 20);
        assert_eq!(state.decode_flops(2, 5000, 1).unwrap(), 6 << 20);
        assert_eq!(state.causal_flops(10, 1).unwrap(), 30 << 20);
    }
}
