//! Properties of the kernels: the scalar reference agrees with the plain definition of every format, and every
//! instruction set with the scalar reference.

pub(super) mod products;
pub(super) mod random;
mod vectors;
