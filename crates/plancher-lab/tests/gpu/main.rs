//! What runs on a GPU: every version of the catalogue, cheating candidates, wrong and right kernels of learners. Every test is
//! skipped where there is no GPU, unless `PLANCHER_REQUIRE_GPU=1`.

mod cheats;
mod common;
mod learners;
mod small;
mod versions;
