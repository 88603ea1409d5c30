//! Putting a model's matrices on the device: stored ones through page-locked memory, dummy ones made there.

use plancher_model::{DType, LayerTensor, ModelConfig, TensorKey, Weights};

use super::convert::{self, TooLarge};
use super::{DeviceMatrix, Element, FAMILY, padded};
use crate::kernel::Loader;
use crate::{Arguments, CudaError, Device, DeviceBuffer, Kernel, Launch, PinnedBuffer, Result};

/// Elements that are converted and copied at a time.
const STAGE: usize = 16 << 20;
/// Blocks of the kernel that makes random matrices; more would only queue.
const RANDOM_BLOCKS: u32 = 4096;

/// The stored tensors of one matrix on the device, stacked.
pub(super) struct Stack {
    pub(super) parts: Vec<TensorKey>,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Stack {
    /// Tensors of `layer`, or one outside of the layers.
    pub(super) fn new(config: &ModelConfig, parts: &[TensorKey]) -> Self {
        let shapes: Vec<_> = parts.iter().map(|&part| config.shape(part)).collect();
        let columns = shapes.iter().map(|shape| shape.1).max().unwrap_or(0);
        Self { parts: parts.to_vec(), rows: shapes.iter().map(|shape| shape.0).sum(), columns }
    }

    pub(super) fn of_layer(config: &ModelConfig, layer: usize, parts: &[LayerTensor]) -> Self {
        let parts: Vec<_> = parts.iter().map(|&part| TensorKey::Layer(layer, part)).collect();
        Self::new(config, &parts)
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        2 * self.rows as u64 * padded(self.columns) as u64
    }
}

/// Loads matrices one after the other.
pub(super) struct MatrixLoader<'a> {
    pub(super) device: &'a Device,
    pub(super) weights: &'a Weights,
    pub(super) element: Element,
    random: Option<Kernel>,
    stages: Option<[PinnedBuffer<u16>; 2]>,
    /// Bytes on the device so far, all bytes, and who wants to know.
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
    /// Types that were stored and had to be converted.
    pub(super) converted: Vec<DType>,
}

/// Why a matrix could not be loaded.
pub(super) enum Failure {
    /// The element type does not hold it.
    TooLarge,
    /// The device failed.
    Cuda(CudaError),
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl From<TooLarge> for Failure {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge
    }
}

impl<'a> MatrixLoader<'a> {
    pub(super) fn new(
        device: &'a Device,
        weights: &'a Weights,
        element: Element,
        total: u64,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Self {
        Self { device, weights, element, random: None, stages: None, done: 0, total, progress, converted: Vec::new() }
    }

    pub(super) fn load(&mut self, loader: &mut Loader, stack: &Stack) -> Result<DeviceMatrix, Failure> {
        let mut matrix = DeviceMatrix::uninitialized(self.device, stack.rows, stack.columns)?;
        let mut first_row = 0;
        for &key in &stack.parts {
            let view = self.weights.get(key).ok_or_else(|| missing(key))?;
            if (view.columns(), first_row + view.rows() > stack.rows) != (stack.columns, false) {
                return Err(missing(key).into());
            }
            match self.weights.dummy(key) {
                Some(dummy) => self.make(loader, &mut matrix, first_row, view.rows(), dummy)?,
                None => self.stage(&mut matrix, first_row, key)?,
            }
            first_row += view.rows();
        }
        if first_row != stack.rows {
            return Err(
                CudaError::Unsupported(format!("a matrix of {first_row} rows should have {}", stack.rows)).into()
            );
        }
        Ok(matrix)
    }

    /// Makes `rows` random rows on the device.
    fn make(
        &mut self,
        loader: &mut Loader,
        matrix: &mut DeviceMatrix,
        first_row: usize,
        rows: usize,
        dummy: plancher_model::DummyTensor,
    ) -> Result<(), Failure> {
        if self.random.is_none() {
            self.random = Some(loader.kernel(FAMILY.source, &self.element.constants(), "fill_random")?);
        }
        let Some(kernel) = &self.random else { return Ok(()) };
        let arguments = Arguments::new()
            .value(matrix.elements.pointer_at(first_row * matrix.stride))
            .value(rows as u64)
            .value(matrix.columns as u64)
            .value(matrix.stride as u64)
            .value(dummy.seed)
            .value(dummy.amplitude);
        // SAFETY: the rows lie inside the matrix, as `load` has checked.
        unsafe { kernel.launch(&Launch::linear(RANDOM_BLOCKS, 256), &arguments)? };
        self.count(2 * rows * matrix.stride);
        Ok(())
    }

    /// Converts the rows of a stored tensor and copies them: while one stage is copied, the other is filled.
    fn stage(&mut self, matrix: &mut DeviceMatrix, first_row: usize, key: TensorKey) -> Result<(), Failure> {
        let view = self.weights.get(key).ok_or_else(|| missing(key))?;
        if !convert::is_exact(&view, self.element) && !self.converted.contains(&view.dtype()) {
            self.converted.push(view.dtype());
        }
        let stride = matrix.stride;
        let size = STAGE.max(stride);
        if self.stages.as_ref().is_none_or(|stages| stages[0].len() < size) {
            self.stages = Some([PinnedBuffer::zeroed(self.device, size)?, PinnedBuffer::zeroed(self.device, size)?]);
        }
        let at_once = size / stride;
        for (turn, row) in (0..view.rows()).step_by(at_once).enumerate() {
            let count = at_once.min(view.rows() - row);
            let Some(stages) = &mut self.stages else { return Ok(()) };
            let stage = &mut stages[turn % 2];
            convert::rows(&view, self.element, row, stride, &mut stage.as_mut_slice()[..count * stride])?;
            // The copy of the other stage is done now, so that the next turn may fill it.
            self.device.synchronize()?;
            // SAFETY: a stage is written again two turns later, after the wait above of the turn between, and dropped
            // only after a wait.
            unsafe { matrix.elements.upload_async((first_row + row) * stride, stage, 0, count * stride)? };
            self.count(2 * count * stride);
        }
        self.device.synchronize()?;
        self.weights.release(key);
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        self.done += bytes as u64;
        (self.progress)(self.done, self.total);
    }
}

/// The vector, on the device.
pub(super) fn vector(device: &Device, values: &[f32]) -> Result<DeviceBuffer<f32>> {
    DeviceBuffer::from_slice(device, values)
}

fn missing(key: TensorKey) -> CudaError {
    CudaError::Unsupported(format!("tensor `{key}` is missing or has another shape than the configuration says"))
}
