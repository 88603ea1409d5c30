//! What runs on a GPU, against golden checkpoints and double precision. Every test is skipped where there is no GPU, unless
//! `PLANCHER_REQUIRE_GPU=1`.

mod common;
mod decode;
mod matmul;
mod mega;
mod mega_ends;
mod prefill;
mod sampling;
