//! Eight logits side by side: vector code where the machine has it (AVX2, through `pulp`, which finds that out), plain
//! Rust elsewhere. The same operations in the same order, nothing fused: every machine gets the same bits. What
//! runs under [`dispatch`] must be inlined into it, or its vectors are passed through memory.

use super::candidates::BLOCK;

/// Values side by side.
pub(super) const LANES: usize = 8;

/// The operations on eight values.
pub(super) trait Lanes: Copy {
    type Vector: Copy;

    fn load(self, values: &[f32; LANES]) -> Self::Vector;
    fn store(self, x: Self::Vector) -> [f32; LANES];
    fn add(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    fn subtract(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    fn multiply(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// The larger of each two values; that of `y` where the one of `x` is NaN.
    fn larger(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// The values of `then` where `x` is at least `least`, else those of `otherwise`.
    fn select(self, x: Self::Vector, least: Self::Vector, then: Self::Vector, otherwise: Self::Vector) -> Self::Vector;
    /// The floats whose bits are those of `x` moved left by 8.
    fn move_bits(self, x: Self::Vector) -> Self::Vector;

    #[inline(always)]
    fn all(self, value: f32) -> Self::Vector {
        self.load(&[value; LANES])
    }

    /// The values of `kept` where `x` is at least `least`, else 0.
    #[inline(always)]
    fn keep(self, x: Self::Vector, least: Self::Vector, kept: Self::Vector) -> Self::Vector {
        self.select(x, least, kept, self.all(0.0))
    }

    /// The sum, by halves.
    #[inline(always)]
    fn sum(self, x: Self::Vector) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.store(x);
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }

    /// The largest.
    #[inline(always)]
    fn largest(self, x: Self::Vector) -> f32 {
        let larger = |x: f32, y: f32| if x > y { x } else { y };
        let [a, b, c, d, e, f, g, h] = self.store(x);
        larger(larger(larger(a, e), larger(c, g)), larger(larger(b, f), larger(d, h)))
    }
}

/// Work on vectors.
pub(super) trait Task {
    type Output;

    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Runs `task` with the machine's vectors.
pub(super) fn dispatch<T: Task>(task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = pulp::x86::V3::try_new() {
        return avx2.vectorize(avx2::Dispatched(task, avx2));
    }
    task.run(Plain)
}

/// Eight values one after another.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Lanes for Plain {
    type Vector = [f32; LANES];

    fn load(self, values: &[f32; LANES]) -> Self::Vector {
        *values
    }

    fn store(self, x: Self::Vector) -> [f32; LANES] {
        x
    }

    fn add(self, x: Self::Vector, y: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| x[lane] + y[lane])
    }

    fn subtract(self, x: Self::Vector, y: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| x[lane] - y[lane])
    }

    fn multiply(self, x: Self::Vector, y: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| x[lane] * y[lane])
    }

    fn larger(self, x: Self::Vector, y: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| if x[lane] > y[lane] { x[lane] } else { y[lane] })
    }

    fn select(self, x: Self::Vector, least: Self::Vector, then: Self::Vector, otherwise: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| if x[lane] >= least[lane] { then[lane] } else { otherwise[lane] })
    }

    fn move_bits(self, x: Self::Vector) -> Self::Vector {
        x.map(|x| f32::from_bits(x.to_bits() << 8))
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    //! Eight values in one register.

    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast, f32x8};

    use super::{LANES, Lanes, Task};

    pub(super) struct Dispatched<T>(pub(super) T, pub(super) V3);

    impl<T: Task> NullaryFnOnce for Dispatched<T> {
        type Output = T::Output;

        #[inline(always)]
        fn call(self) -> T::Output {
            self.0.run(self.1)
        }
    }

    impl Lanes for V3 {
        type Vector = f32x8;

        #[inline(always)]
        fn load(self, values: &[f32; LANES]) -> f32x8 {
            cast(*values)
        }

        #[inline(always)]
        fn store(self, x: f32x8) -> [f32; LANES] {
            cast(x)
        }

        #[inline(always)]
        fn add(self, x: f32x8, y: f32x8) -> f32x8 {
            self.add_f32x8(x, y)
        }

        #[inline(always)]
        fn subtract(self, x: f32x8, y: f32x8) -> f32x8 {
            self.sub_f32x8(x, y)
        }

        #[inline(always)]
        fn multiply(self, x: f32x8, y: f32x8) -> f32x8 {
            self.mul_f32x8(x, y)
        }

        #[inline(always)]
        fn larger(self, x: f32x8, y: f32x8) -> f32x8 {
            // The instruction gives its second operand where one is NaN.
            self.max_f32x8(x, y)
        }

        #[inline(always)]
        fn select(self, x: f32x8, least: f32x8, then: f32x8, otherwise: f32x8) -> f32x8 {
            self.select_f32x8(self.cmp_ge_f32x8(x, least), then, otherwise)
        }

        #[inline(always)]
        fn move_bits(self, x: f32x8) -> f32x8 {
            cast(self.shl_const_u32x8::<8>(cast(x)))
        }
    }
}

/// The full blocks, and the rest filled up with minus infinity.
pub(super) fn blocks_of(logits: &[f32]) -> (&[[f32; BLOCK]], [f32; BLOCK]) {
    let (full, rest) = logits.as_chunks();
    let mut last = [f32::NEG_INFINITY; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    (full, last)
}

/// A block of one logit.
pub(super) fn one(logit: f32) -> [f32; BLOCK] {
    let mut block = [f32::NEG_INFINITY; BLOCK];
    block[0] = logit;
    block
}
