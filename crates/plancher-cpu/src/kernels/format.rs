//! The quantised types at compile time, for kernels that are generic over them. See [`super::layout`] for where their
//! bits lie.

use plancher_model::DType;

use super::input::BLOCK;
use super::scalar;

/// A quantised type at compile time.
pub(super) trait Format {
    const DTYPE: DType;
    /// Groups of 32 elements in a block.
    const SUBS: usize = Self::DTYPE.block_elements() / BLOCK;
    /// What is subtracted from stored quants, as a power of two.
    const OFFSET: u8 = scalar::offset(Self::DTYPE);
    /// Bits of a stored quant.
    const BITS: u32 = match Self::DTYPE {
        DType::Q2_K => 2,
        DType::Q3_K => 3,
        DType::Q4_0 | DType::Q4_1 | DType::Q4_K => 4,
        DType::Q5_0 | DType::Q5_1 | DType::Q5_K => 5,
        DType::Q6_K => 6,
        _ => 8,
    };
    /// Whether every 16 elements have their own scale, rather than every 32.
    const HALVES: bool = matches!(Self::DTYPE, DType::Q2_K | DType::Q3_K | DType::Q6_K);
    /// Whether there are minima.
    const MINIMA: bool = matches!(Self::DTYPE, DType::Q4_1 | DType::Q5_1 | DType::Q2_K | DType::Q4_K | DType::Q5_K);
    /// Whether minima are stored to be added, rather than subtracted.
    const MINIMA_ADDED: bool = matches!(Self::DTYPE, DType::Q4_1 | DType::Q5_1);
}

macro_rules! formats {
    ($($name:ident)*) => {
        $(
            pub(super) struct $name;

            impl Format for $name {
                const DTYPE: DType = DType::$name;
            }
        )*
    };
}
formats!(Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K);

/// Runs `$body` with `$sub` as a constant for every group of a block of `$format`.
macro_rules! for_each_sub {
    ($format:ty, $sub:ident => $body:block) => {
        for_each_sub!(@one $sub 0 $body);
        if <$format>::SUBS == 8 {
            for_each_sub!(@one $sub 1 $body);
            for_each_sub!(@one $sub 2 $body);
            for_each_sub!(@one $sub 3 $body);
            for_each_sub!(@one $sub 4 $body);
            for_each_sub!(@one $sub 5 $body);
            for_each_sub!(@one $sub 6 $body);
            for_each_sub!(@one $sub 7 $body);
        }
    };
    (@one $sub:ident $value:literal $body:block) => {{
        const $sub: usize = $value;
        $body
    }};
}

/// Calls `$function::<$format>` with the [`Format`] of a quantised type.
macro_rules! with_format {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::Q8_0 => $function::<$crate::kernels::format::Q8_0>($($argument),*),
            DType::Q4_0 => $function::<$crate::kernels::format::Q4_0>($($argument),*),
            DType::Q4_1 => $function::<$crate::kernels::format::Q4_1>($($argument),*),
            DType::Q5_0 => $function::<$crate::kernels::format::Q5_0>($($argument),*),
            DType::Q5_1 => $function::<$crate::kernels::format::Q5_1>($($argument),*),
            DType::Q2_K => $function::<$crate::kernels::format::Q2_K>($($argument),*),
            DType::Q3_K => $function::<$crate::kernels::format::Q3_K>($($argument),*),
            DType::Q4_K => $function::<$crate::kernels::format::Q4_K>($($argument),*),
            DType::Q5_K => $function::<$crate::kernels::format::Q5_K>($($argument),*),
            DType::Q6_K => $function::<$crate::kernels::format::Q6_K>($($argument),*),
            DType::F32 | DType::F16 | DType::BF16 | DType::F8_E4M3 => unreachable!("plain types go elsewhere"),
        }
    };
}
pub(super) use {for_each_sub, with_format};
