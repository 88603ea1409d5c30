//! The physical floor of a language model on a machine: which bytes must move and which FLOP must be done to produce
//! a token, and the least time that takes. Arithmetic only: no I/O, integers where the configuration decides.
//!
//! # Units
//! Bytes are bytes and GB is 1e9 of them; FLOP are 2 per multiply-add; times are seconds, rates per second. Bandwidths
//! and dense peaks are those of *one device*; a [`Floor`] counts what one device moves and does.
//!
//! # Use
//! A [`ModelShape`] is the model: from [`presets::model`], from a `config.json` by [`config::from_json`], or built
//! from stored tensors as lists of [`Weight`] (class, rows, columns, stored [`Format`]) and an [`Attention`] a layer.
//! A [`Hardware`] is the machine: [`presets::hardware`], or [`Hardware::from_bandwidth`] where only the bandwidth is
//! known. [`floor`] gives the [`Floor`] of one pass:
//!
//! ```
//! use plancher_floor::{Hardware, Regime, Setting, floor, presets};
//!
//! let model = presets::model("llama-3.1-8b")?;
//! let floor_h200 = floor(&model, &presets::hardware("h200")?, Regime::decode(1, 1024), Setting::default())?;
//! assert_eq!(floor_h200.weight_bytes_read(), 15_009_849_344);
//! assert_eq!(floor_h200.kv_bytes(), 1024 * 131_072);
//! assert_eq!(format!("{:.3} ms", 1e3 * floor_h200.seconds()), "3.155 ms");
//!
//! // The same pass where only a measured bandwidth is known: compute is then not counted.
//! let cpu = Hardware::from_bandwidth("this CPU", 26.5e9, "measured")?;
//! let floor_cpu = floor(&model, &cpu, Regime::decode(1, 1024), Setting::default())?;
//! assert_eq!(floor_cpu.bytes(), floor_h200.bytes());
//! # Ok::<(), plancher_floor::FloorError>(())
//! ```
//!
//! # From stored tensors
//! Every matrix is a [`Weight::matrix`] with its class and stored format, every norm and bias a [`Weight::vector`]; tied
//! embeddings are one [`Class::Head`] weight, an untied input table is [`Class::Embedding`] (a token reads one row of
//! it, so that it is stored but not read).
//!
//! ```
//! use plancher_floor::{Attention, Class, Format, LayerShape, ModelShape, Shard, Weight};
//!
//! let q4: Format = "q4_k".parse()?;
//! let layer = LayerShape {
//!     attention: Attention::Heads { n_heads: 8, n_kv_heads: 2, head_dim: 64, value_dim: 64, window: None },
//!     weights: vec![
//!         Weight::matrix(Class::AttentionWeights, 512, 512, q4, Shard::Heads(8)),
//!         Weight::matrix(Class::Mlp, 1536, 512, q4, Shard::Features(1536)),
//!         Weight::vector(512, Format::F32),
//!     ],
//! };
//! let model = ModelShape {
//!     name: "small".to_owned(),
//!     hidden_size: 512,
//!     vocab_size: 1000,
//!     context_length: Some(2048),
//!     layers: vec![layer],
//!     outside: vec![Weight::matrix(Class::Head, 1000, 512, Format::Q8_0, Shard::Vocabulary(1000))],
//!     predictor: None,
//!     notes: Vec::new(),
//! };
//! assert_eq!(model.stored_bytes(1)?, (512 + 1536) * 512 * 9 / 16 + 512 * 4 + 1000 * 512 * 17 / 16);
//! # Ok::<(), plancher_floor::FloorError>(())
//! ```

pub mod activations;
mod attention;
mod communication;
pub mod config;
mod crossover;
mod error;
mod experts;
pub mod fit;
mod format;
pub mod gap;
mod hardware;
mod pass;
pub mod presets;
pub mod seed_tables;
mod shape;
mod speculation;
mod training;

pub use attention::Attention;
pub use communication::Communication;
pub use crossover::{Crossover, WholePass, crossover};
pub use error::{FloorError, Result};
pub use experts::expected_share;
pub use format::{Format, Group};
pub use hardware::{Compute, Hardware, Link, Measured, Peaks};
pub use pass::{Floor, Limiter, Operation, Regime, Setting, floor};
pub use shape::{Class, Experts, LayerShape, ModelShape, Shard, Weight};
pub use speculation::{Acceptance, Draft, Speculation, speculation, tokens_per_pass};
pub use training::{Checkpointing, Training, TrainingFloor, TrainingMemory, training_floor};
