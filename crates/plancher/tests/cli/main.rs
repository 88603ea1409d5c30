//! The built program as users meet it: arguments in, output, messages and exit status out. By theme, on the small
//! golden checkpoints of `tests/golden` (which have no tokenizer) and on stories260k where it is.

mod bench;
mod common;
mod device;
mod documents;
mod generate;
mod inspect;
mod kernels;
mod lab;
mod logits;
mod program;
mod stories;
mod usage;
