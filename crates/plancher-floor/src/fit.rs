//! What fits in memory: weights and KV of one device against its capacity, to the byte.

use crate::error::{Result, product, sum};
use crate::pass::at_least_one;
use crate::{FloorError, Hardware, ModelShape, Setting};

/// What one device must hold, and what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Bytes of weights on one device, embedding tables included.
    pub weights: u128,
    /// Bytes of KV cache on one device.
    pub kv: u128,
    /// Bytes of memory of one device.
    pub capacity: u128,
}

impl Fit {
    /// Bytes left over; negative by how many are missing.
    #[must_use]
    pub const fn margin(&self) -> i128 {
        self.capacity as i128 - self.needed() as i128
    }

    /// Bytes of both weights and KV cache.
    #[must_use]
    pub const fn needed(&self) -> u128 {
        self.weights + self.kv
    }
}

fn capacity(hardware: &Hardware) -> Result<u128> {
    hardware
        .memory_bytes
        .map(u128::from)
        .ok_or_else(|| FloorError::invalid("memory_bytes", format!("the memory of `{}` is not known", hardware.name)))
}

/// What `batch` sequences at `context` tokens take on one device.
///
/// # Errors
/// When a count is impossible, the memory is not known or the devices do not divide the model.
pub fn fit(shape: &ModelShape, hardware: &Hardware, setting: Setting, batch: u64, context: u64) -> Result<Fit> {
    at_least_one("batch", batch)?;
    at_least_one("context", context)?;
    at_least_one("tensor parallel", setting.tensor_parallel)?;
    let sequence = shape.kv_bytes(context, setting.kv, setting.tensor_parallel)?;
    let fit = Fit {
        weights: shape.stored_bytes(setting.tensor_parallel)?,
        kv: product("KV bytes", [sequence, batch.into()])?,
        capacity: capacity(hardware)?,
    };
    // A margin has a sign, and so one bit less.
    match sum("bytes", [fit.weights, fit.kv])? {
        needed if needed < 1 << 127 => Ok(fit),
        _ => Err(FloorError::Overflow("bytes")),
    }
}

/// Refuses what does not fit, by how many bytes. A machine whose memory is not known refuses nothing.
///
/// # Errors
/// [`FloorError::DoesNotFit`], or those of [`fit`].
pub fn check(shape: &ModelShape, hardware: &Hardware, setting: Setting, batch: u64, context: u64) -> Result<()> {
    if hardware.memory_bytes.is_none() {
        return Ok(());
    }
    let fit = fit(shape, hardware, setting, batch, context)?;
    if fit.margin() >= 0 {
        return Ok(());
    }
    Err(FloorError::DoesNotFit {
        what: format!("{} at batch {batch} and context {context}", shape.name),
        hardware: hardware.name.clone(),
        needed: fit.needed(),
        available: fit.capacity,
    })
}

/// The largest batch at a context that fits, with what it takes; `None` when not even one sequence does.
///
/// # Errors
/// Those of [`fit`].
pub fn largest_batch(
    shape: &ModelShape,
    hardware: &Hardware,
    setting: Setting,
    context: u64,
) -> Result<Option<(u64, Fit)>> {
    largest(|batch| fit(shape, hardware, setting, batch, context))
}

/// The largest context at a batch that fits, whatever the model was made for; `None` when not even one token does.
///
/// # Errors
/// Those of [`fit`].
pub fn largest_context(
    shape: &ModelShape,
    hardware: &Hardware,
    setting: Setting,
    batch: u64,
) -> Result<Option<(u64, Fit)>> {
    largest(|context| fit(shape, hardware, setting, batch, context))
}

/// The largest count up to 2^31 whose fit has no negative margin; what is needed never falls with the count.
fn largest(fit: impl Fn(u64) -> Result<Fit>) -> Result<Option<(u64, Fit)>> {
    let fits = |n| fit(n).map(|fit| fit.margin() >= 0);
    if !fits(1)? {
        return Ok(None);
    }
    let n = partition_point(1, 1 << 31, |n| fits(n).map(|fits| !fits))?;
    let n = match n {
        Some(first_too_large) => first_too_large - 1,
        None => 1 << 31,
    };
    Ok(Some((n, fit(n)?)))
}

/// The smallest `n` in `low..=high` for which `holds`, which must stay true once it is; `None` when it never is.
pub(crate) fn partition_point(low: u64, high: u64, holds: impl Fn(u64) -> Result<bool>) -> Result<Option<u64>> {
    if !holds(high)? {
        return Ok(None);
    }
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn llama_8b_on_an_l4_fits_to_the_byte() {
        let model = presets::model("llama-3.1-8b").unwrap();
        let l4 = presets::hardware("l4").unwrap();
        let setting = Setting::default();
        let (batch, fit) = largest_batch(&model, &l4, setting, 8192).unwrap().unwrap();
        assert_eq!(fit.weights, 2 * 8_030_261_248);
        // 24e9 − 16,060,522,496 = 7,939,477,504 bytes; a sequence takes 1,073,741,824.
        assert_eq!((batch, fit.margin()), (7, 7_939_477_504 - 7 * 1_073_741_824));
        let (context, fit) = largest_context(&model, &l4, setting, 1).unwrap().unwrap();
        assert_eq!((context, fit.margin()), (7_939_477_504 / 131_072, 7_939_477_504 % 131_072));
    }

    #[test]
    fn what_does_not_fit_says_by_how_many_bytes() {
        let model = presets::model("llama-3.1-70b").unwrap();
        let h100 = presets::hardware("h100-sxm").unwrap();
        let error = check(&model, &h100, Setting::default(), 1, 1).unwrap_err();
        let FloorError::DoesNotFit { needed, available, .. } = &error else { panic!("{error}") };
        assert_eq!((*needed, *available), (2 * 70_553_706_496 + 327_680, 80_000_000_000));
        assert!(error.to_string().ends_with("61107740672 bytes too many"), "{error}");
        assert_eq!(largest_batch(&model, &h100, Setting::default(), 1).unwrap(), None);
        check(&model, &h100, Setting { tensor_parallel: 2, ..Setting::default() }, 1, 8192).unwrap();
    }

    #[test]
    fn what_no_signed_count_holds_is_refused() {
        let mut model = presets::model("llama-3.1-8b").unwrap();
        for layer in &mut model.layers {
            let width = 1 << 28;
            layer.attention = crate::Attention::Heads {
                n_heads: width,
                n_kv_heads: width,
                head_dim: width,
                value_dim: width,
                window: None,
            };
        }
        let l4 = presets::hardware("l4").unwrap();
        // 32 layers × 2^28 heads × 2^29 elements × 2 bytes = 2^63 a token: 2^125 fit in the count, 2^127 have no sign.
        let taken = |batch| fit(&model, &l4, Setting::default(), batch, 1 << 31).map(|fit| fit.margin() < 0);
        assert_eq!(taken(1 << 31), Ok(true));
        model.layers.extend(model.layers.clone());
        model.layers.extend(model.layers.clone());
        let taken = |batch| fit(&model, &l4, Setting::default(), batch, 1 << 31).map(|fit| fit.margin() < 0);
        assert_eq!(taken(1 << 31), Err(FloorError::Overflow("bytes")));
    }

    #[test]
    fn a_windowed_model_has_no_largest_context_below_the_limit() {
        let mistral = presets::model("mistral-7b").unwrap();
        let h100 = presets::hardware("h100-sxm").unwrap();
        let (context, _) = largest_context(&mistral, &h100, Setting::default(), 1).unwrap().unwrap();
        assert_eq!(context, 1 << 31);
    }
}
