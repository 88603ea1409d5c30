//! Stored tensors by role. A [`Weights`] owns the mapped files and says, for each role in the model, where
//! its rows lie and how they are encoded. Fused tensors (phi3's `qkv_proj`) are row ranges of one source.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::dummy::DummyTensor;
use crate::{DType, ModelError, Result};

/// A tensor of one layer, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it; shapes are given once in `TensorKey`")]
pub enum LayerTensor {
    AttentionNorm,
    Query,
    Key,
    Value,
    QueryBias,
    KeyBias,
    ValueBias,
    QueryNorm,
    KeyNorm,
    AttentionOutput,
    AttentionOutputBias,
    PostAttentionNorm,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
    GateBias,
    UpBias,
    DownBias,
    PostFeedForwardNorm,
}

/// A tensor's role in the model. Matrices are `(rows, columns)` = `(outputs, inputs)`; vectors (norms and
/// biases) are `(1, n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TensorKey {
    /// `(vocab_size, hidden_size)`.
    Embedding,
    /// `(1, hidden_size)`.
    OutputNorm,
    /// `(vocab_size, hidden_size)`; the embedding itself when tied.
    Head,
    /// A tensor of layer `.0`.
    Layer(usize, LayerTensor),
}

impl std::fmt::Display for TensorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedding => f.write_str("embedding"),
            Self::OutputNorm => f.write_str("output norm"),
            Self::Head => f.write_str("head"),
            Self::Layer(layer, tensor) => write!(f, "layer {layer} {tensor:?}"),
        }
    }
}

/// What multiplies stored elements, beside the scales inside quantised blocks. Only fp8 checkpoints have it.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Nothing.
    One,
    /// One factor for the tensor.
    Tensor(f32),
    /// One factor a row, `(rows)`.
    Row(Vec<f32>),
    /// One factor per block of `block_rows × block_columns`, row-major
    /// `(ceil(rows / block_rows), ceil(columns / block_columns))`.
    Block {
        /// Rows of a block.
        block_rows: usize,
        /// Columns of a block.
        block_columns: usize,
        /// The factors.
        values: Vec<f32>,
    },
}

/// Where a tensor's rows lie: contiguous, row-major, in one of the mapped files.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The name in the file, for messages.
    pub name: String,
    /// The encoding.
    pub dtype: DType,
    /// Outputs; 1 for a vector.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
    /// Index of the mapped file.
    pub file: usize,
    /// Byte offset of the first row in the file.
    pub offset: usize,
    /// Factors on the stored elements.
    pub scale: Scale,
}

/// A read-only mapped file.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: memmap2::Mmap,
    /// Pages that were let go could be read again.
    has_file: bool,
}

impl MappedFile {
    /// Maps `path` for reading.
    ///
    /// # Errors
    /// When the file cannot be opened, is not a regular file, is empty, or cannot be mapped.
    pub fn open(path: &Path) -> Result<Self> {
        let file = crate::json::open_regular(path)?;
        let metadata = file.metadata().map_err(|e| ModelError::io(path, e))?;
        if metadata.len() == 0 {
            return Err(ModelError::invalid(path, "file", "is empty (0 bytes)"));
        }
        // SAFETY: the map is private and read-only. Another process that shortens the file while it is mapped
        // would make reads past the new end fault; as with every engine that maps its weights, model files are
        // taken to be left alone while they are in use.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| ModelError::io(path, e))?;
        Ok(Self { path: path.to_owned(), map, has_file: true })
    }

    /// Memory without a file behind it; `path` is what messages name.
    pub(crate) fn anonymous(path: &Path, map: memmap2::Mmap) -> Self {
        Self { path: path.to_owned(), map, has_file: false }
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Tells the operating system that the pages of `range` will not be read again soon, so that they do not
    /// count as resident. Reading them again is still right, only slower.
    pub fn release(&self, range: std::ops::Range<usize>) {
        if !self.has_file {
            return;
        }
        #[cfg(unix)]
        {
            let page = 4096;
            let start = range.start.next_multiple_of(page);
            let end = range.end.min(self.map.len()) / page * page;
            if start < end {
                // SAFETY: the mapping is file-backed, shared and read-only: dropped pages are read from the file
                // again on the next access.
                let _ =
                    unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

/// The model's tensors by role.
#[derive(Debug, Default)]
pub struct Weights {
    files: Vec<MappedFile>,
    tensors: HashMap<TensorKey, Tensor>,
    dummies: HashMap<TensorKey, DummyTensor>,
}

/// A tensor with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Where and what it is.
    pub tensor: &'a Tensor,
    /// All rows, `rows * row_bytes`.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The encoding.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.tensor.dtype
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tensor.rows
    }

    /// Inputs.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.tensor.columns
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.bytes.len() / self.tensor.rows.max(1)
    }

    /// The bytes of row `row`.
    ///
    /// # Panics
    /// When `row` is out of range.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [u8] {
        let n = self.row_bytes();
        &self.bytes[row * n..(row + 1) * n]
    }
}

impl Weights {
    /// Collects tensors over mapped files. Every tensor must lie inside its file.
    ///
    /// # Errors
    /// When a tensor's size overflows, is not a whole number of blocks, or reaches past its file's end.
    pub fn new(files: Vec<MappedFile>, tensors: HashMap<TensorKey, Tensor>) -> Result<Self> {
        for tensor in tensors.values() {
            let file = &files[tensor.file];
            let fits = tensor
                .dtype
                .row_bytes(tensor.columns)
                .and_then(|row| row.checked_mul(tensor.rows))
                .and_then(|bytes| bytes.checked_add(tensor.offset))
                .is_some_and(|end| end <= file.bytes().len());
            if !fits {
                return Err(ModelError::invalid(
                    file.path(),
                    &tensor.name,
                    format!(
                        "({}, {}) {} at byte {} does not fit in a file of {} bytes",
                        tensor.rows,
                        tensor.columns,
                        tensor.dtype,
                        tensor.offset,
                        file.bytes().len()
                    ),
                ));
            }
        }
        Ok(Self { files, tensors, dummies: HashMap::new() })
    }

    /// The same, whose tensors are made by these rules and may hold zeros in their place (see [`crate::DummyFill`]).
    pub(crate) fn with_dummies(self, dummies: HashMap<TensorKey, DummyTensor>) -> Self {
        Self { dummies, ..self }
    }

    /// How the tensor in role `key` is made, in a dummy model that has it.
    #[must_use]
    pub fn dummy(&self, key: TensorKey) -> Option<DummyTensor> {
        self.dummies.get(&key).copied()
    }

    /// The tensor in role `key`, if the model has it.
    #[must_use]
    pub fn get(&self, key: TensorKey) -> Option<TensorView<'_>> {
        let tensor = self.tensors.get(&key)?;
        let bytes = tensor.dtype.row_bytes(tensor.columns)? * tensor.rows;
        let file = &self.files[tensor.file];
        Some(TensorView { tensor, bytes: &file.bytes()[tensor.offset..tensor.offset + bytes] })
    }

    /// The vector in role `key` as f32, if the model has it.
    #[must_use]
    pub fn vector(&self, key: TensorKey) -> Option<Vec<f32>> {
        let view = self.get(key)?;
        let mut out = vec![0.0; view.columns()];
        view.dequantize_row(0, &mut out);
        Some(out)
    }

    /// Lets go of the resident pages of the tensor in role `key` (see [`MappedFile::release`]).
    pub fn release(&self, key: TensorKey) {
        if let Some(view) = self.get(key) {
            let start = view.tensor.offset;
            self.files[view.tensor.file].release(start..start + view.bytes.len());
        }
    }

    /// All tensors with their roles, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (TensorKey, &Tensor)> {
        self.tensors.iter().map(|(&key, tensor)| (key, tensor))
    }

    /// The mapped files.
    #[must_use]
    pub fn files(&self) -> &[MappedFile] {
        &self.files
    }
}
