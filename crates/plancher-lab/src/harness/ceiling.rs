//! Ceilings, measured like candidates: memory traffic by the fastest of several kernels and the driver, products by the
//! vendor's library.

use std::collections::HashMap;

use plancher_cuda::{
    Compiler, Device, DeviceBuffer, Element, Event, Matmul, MatmulChoice, Output, Product, ProductF32,
};

use super::candidate::Run;
use super::launch::{multiply, multiply_f32};
use super::traffic::{Memory, Way};
use crate::record::CeilingRun;
use crate::step::Ceiling;
use crate::{Dtype, LabError, Operation, Result, Shape};

/// Tries of each way of moving bytes before the fastest is chosen; the first warms up.
const TRIES: usize = 3;
/// Samples of a ceiling that is measured by itself.
const SAMPLES: usize = 9;

/// Measures ceilings.
#[derive(Debug)]
pub struct Ceilings {
    device: Device,
    memory: Memory,
    matmul: Option<Matmul>,
    /// Where the vendor's products go.
    product: DeviceBuffer<u8>,
    /// The fastest way for so many bytes, with its name.
    chosen: HashMap<(Ceiling, u64), Way>,
}

impl Ceilings {
    /// Sets memory aside: `bytes` for traffic, `product_bytes` for the vendor's results.
    ///
    /// # Errors
    /// If there is not so much.
    pub fn new(device: &Device, compiler: &Compiler, bytes: u64, product_bytes: u64) -> Result<Self> {
        let product_bytes = usize::try_from(product_bytes).unwrap_or(usize::MAX);
        Ok(Self {
            device: device.clone(),
            memory: Memory::new(device, compiler, bytes)?,
            matmul: Matmul::new(device, compiler, MatmulChoice::CublasLt).ok(),
            product: DeviceBuffer::uninitialized(device, product_bytes)?,
            chosen: HashMap::new(),
        })
    }

    /// The vendor's library; empty where there is none.
    #[must_use]
    pub fn library(&self) -> String {
        self.matmul.as_ref().map(Matmul::name).unwrap_or_default()
    }

    /// Whether this ceiling can be measured here.
    #[must_use]
    pub fn has(&self, ceiling: Ceiling) -> bool {
        match ceiling {
            Ceiling::DataSheet => false,
            Ceiling::Cublas => self.matmul.is_some(),
            _ => true,
        }
    }

    /// How a ceiling is measured at so many bytes, in words.
    #[must_use]
    pub fn how(&self, ceiling: Ceiling, bytes: u64) -> String {
        if ceiling == Ceiling::Cublas {
            return self.library();
        }
        let way = self.chosen.get(&(ceiling, self.memory.size(bytes)));
        way.map(|way| self.memory.name(way)).unwrap_or_default()
    }

    /// Chooses the fastest way of moving so many bytes, the first time; `before` is done before each try.
    ///
    /// # Errors
    /// If the device fails.
    pub fn choose(&mut self, ceiling: Ceiling, bytes: u64, before: &dyn Fn() -> Result<()>) -> Result<()> {
        let bytes = self.memory.size(bytes);
        if ceiling == Ceiling::Cublas || self.chosen.contains_key(&(ceiling, bytes)) {
            return Ok(());
        }
        let mut best: Option<(f64, Way)> = None;
        for way in self.memory.ways(ceiling) {
            let mut milliseconds = f64::INFINITY;
            for _ in 0..TRIES {
                before()?;
                let start = Event::record(&self.device)?;
                self.memory.pass(&way, bytes)?;
                milliseconds = milliseconds.min(Event::record(&self.device)?.milliseconds_since(&start)?);
            }
            if best.as_ref().is_none_or(|(fastest, _)| milliseconds < *fastest) {
                best = Some((milliseconds, way));
            }
        }
        let (_, way) = best.ok_or_else(|| LabError::Unsupported(format!("the {ceiling} is not measured")))?;
        self.chosen.insert((ceiling, bytes), way);
        Ok(())
    }

    /// Puts the work of a ceiling on the stream: so many bytes moved, or the product of a run's operands.
    ///
    /// # Errors
    /// If it was not chosen before, or the device fails.
    pub fn launch(&mut self, ceiling: Ceiling, bytes: u64, run: &Run) -> Result<()> {
        if ceiling == Ceiling::Cublas {
            return self.multiply(run);
        }
        let bytes = self.memory.size(bytes);
        let way = self.chosen.get(&(ceiling, bytes));
        let way = way.ok_or_else(|| LabError::Unsupported(format!("the {ceiling} was not prepared")))?;
        self.memory.pass(way, bytes)
    }

    /// The bytes that [`Self::launch`] moves for `bytes`.
    #[must_use]
    pub fn bytes_moved(&self, ceiling: Ceiling, bytes: u64) -> u64 {
        let bytes = self.memory.size(bytes);
        bytes * self.chosen.get(&(ceiling, bytes)).map_or(1, Memory::rounds)
    }

    fn multiply(&mut self, run: &Run) -> Result<()> {
        let (Some(matmul), Operation::Gemm, Shape::Product { m, n, k }) =
            (&mut self.matmul, run.problem.operation, run.problem.shape)
        else {
            return Err(LabError::Unsupported("there is no cuBLASLt for this".to_owned()));
        };
        let (m, n, k) = (m as usize, n as usize, k as usize);
        let pointers = [run.pointers[0], run.pointers[1], self.product.pointer()];
        let bytes = m * n * run.problem.dtype.bytes() as usize;
        if bytes > self.product.len() {
            return Err(LabError::Unsupported("the vendor's product has no room".to_owned()));
        }
        match run.problem.dtype {
            Dtype::F32 => {
                let transposed = run.problem.b_is_transposed();
                multiply_f32(matmul, ProductF32 { m, rows: n, columns: k, transposed }, pointers)
            }
            Dtype::Bf16 => {
                let (element, output) = (Element::Bf16, Output::Elements);
                multiply(matmul, &Product { element, rows: n, columns: k, out_stride: n, output }, m, pointers)
            }
        }
    }

    /// Samples of a ceiling of memory by itself, for the record.
    ///
    /// # Errors
    /// If the device fails.
    pub fn measure(&mut self, ceiling: Ceiling, bytes: u64, before: &dyn Fn() -> Result<()>) -> Result<CeilingRun> {
        self.choose(ceiling, bytes, before)?;
        let size = self.memory.size(bytes);
        let moved = self.bytes_moved(ceiling, bytes);
        let way = self.chosen[&(ceiling, size)].clone();
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            before()?;
            let start = Event::record(&self.device)?;
            self.memory.pass(&way, size)?;
            let milliseconds = Event::record(&self.device)?.milliseconds_since(&start)?;
            samples.push(moved as f64 / milliseconds / 1e6);
        }
        Ok(CeilingRun {
            name: ceiling,
            dtype: Dtype::F32,
            shape: Shape::Vector(size / 4),
            unit: "GB/s".to_owned(),
            how: self.how(ceiling, bytes),
            samples,
        })
    }
}
