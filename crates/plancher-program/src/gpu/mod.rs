//! The step as a program for one persistent kernel on a GPU (the megakernel): batch 1, one block of threads (a worker)
//! on each multiprocessor, many tokens in a launch.
//!
//! [`Plan::new`] takes a model's configuration and what the device has, and refuses in one line what the kernel cannot
//! do. A plan says how many workers there are, which rows of every matrix each of them computes ([`Partition`]), its
//! instruction list ([`Instruction`], 16 bytes each), where every 16-bit element of a weight lies in its stream
//! ([`packing`](Location)), where activations are exchanged in global memory ([`Exchange`]), how attention is cut
//! ([`Attention`]), and how deep the ring of weights in shared memory is ([`Ring`]). [`Summary`] puts it in figures and
//! estimates what a token takes. [`Interpreter`] runs a program ([`Image`]) on the CPU, to the letter.
//!
//! Unlike the CPU's programs these have no counters: a value that is there is its own signal ([`SENTINEL`] is "not
//! there yet"), so an instruction waits for the words of the slot that it reads.

mod attention;
mod check;
mod error;
mod estimate;
mod exchange;
mod instruction;
mod interpret;
mod packing;
mod partition;
mod plan;
mod product;
mod ring;
mod shape;
mod summary;
mod target;

pub use attention::{Attention, PAGE, SPLIT_PAGES, Unit};
pub use check::{CheckError, Place, Use, check};
pub use error::PlanError;
pub use estimate::{Estimate, H200_STREAM, ProductEstimate, Span};
pub use exchange::{COPIES, Exchange, SENTINEL, Slot};
pub use instruction::{INSTRUCTION_BYTES, Instruction, Operation};
pub use interpret::{Fault, Image, Interpreter, Schedule, Waiting};
pub use packing::{ElementSource, Location, RowMajorBits};
pub use partition::Partition;
pub use plan::{Plan, WorkerPlan};
pub use product::{CONSUMERS, K_MULTIPLE, Product, ProductPlan, STAGE_BYTES, STAGE_ELEMENTS, TILE_ROWS, Tiles, padded};
pub use ring::{LEAST_STAGES, Ring};
pub use shape::Shape;
pub use summary::{Balance, ProductSummary, Summary, WorkerSummary};
pub use target::{Element, MOST_MULTIPROCESSORS, MOST_SHARED_MEMORY, Target};
