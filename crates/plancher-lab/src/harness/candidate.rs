//! What is measured: anything that can be asked to do a problem once.

use std::collections::HashMap;

use plancher_cuda::{Arguments, Cubin, Device, Kernel, Launch, Module, TensorMap, Tiled};

use super::launch::launch;
use super::problem::Problem;
use crate::{Directives, Grid, LabError, Operand, Operation, Result, Shape, plural};

/// A problem with its arrays in the device's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What is to be done.
    pub problem: Problem,
    /// The factor of SAXPY.
    pub factor: f32,
    /// The addresses of the problem's arrays, in their order.
    pub pointers: Vec<u64>,
    /// Two arrays of as many elements as [`Candidate::scratch`] asked for.
    pub scratch: [u64; 2],
}

/// Something that does a problem when it is asked to. The harness believes nothing of it.
pub trait Candidate {
    /// Elements that it wants in each of two arrays for what is between its launches.
    ///
    /// # Errors
    /// If the problem cannot be done.
    fn scratch(&self, problem: &Problem) -> Result<u64> {
        let _ = problem;
        Ok(0)
    }

    /// What may be done once before these arrays are used; not timed.
    ///
    /// # Errors
    /// If it fails.
    fn prepare(&mut self, run: &Run) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// Puts the work on the device's stream, without waiting for it.
    ///
    /// # Errors
    /// If it fails.
    fn launch(&mut self, run: &Run) -> Result<()>;
}

/// Tensor maps of those operands that come as one.
type Maps = Vec<(Operand, TensorMap)>;

/// A kernel file, compiled and loaded.
#[derive(Debug)]
pub struct KernelCandidate {
    device: Device,
    kernel: Kernel,
    directives: Directives,
    multiprocessors: u32,
    /// By the run's addresses and sizes.
    maps: HashMap<(Vec<u64>, Problem), Maps>,
}

impl KernelCandidate {
    /// Loads the operation's kernel from compiled code.
    ///
    /// # Errors
    /// If there is no such kernel, or the device does not have the shared memory that is asked for.
    pub fn load(device: &Device, cubin: &Cubin, directives: &Directives, operation: Operation) -> Result<Self> {
        let kernel = Module::load(device, cubin)?.kernel(operation.kernel())?;
        if directives.shared > 0 {
            kernel.set_dynamic_shared_memory(directives.shared)?;
        }
        if directives.cluster.is_some_and(|blocks| blocks > 8) {
            kernel.allow_large_clusters()?;
        }
        Ok(Self {
            device: device.clone(),
            kernel,
            directives: directives.clone(),
            multiprocessors: device.properties().multiprocessors,
            maps: HashMap::new(),
        })
    }

    /// How many of its blocks one multiprocessor holds.
    ///
    /// # Errors
    /// If the driver does not answer.
    pub fn blocks_per_multiprocessor(&self) -> Result<u32> {
        let threads = self.directives.threads_of_block();
        Ok(self.kernel.blocks_per_multiprocessor(threads, self.directives.shared)?)
    }

    fn shape_of_launch(&self, blocks: [u32; 3]) -> Launch {
        let [x, y] = self.directives.threads;
        let launch = Launch::new(blocks, [x, y, 1]).shared(self.directives.shared);
        match self.directives.cluster {
            Some(cluster) => launch.cluster(cluster),
            None => launch,
        }
    }

    fn start(&self, blocks: [u32; 3], arguments: &Arguments) -> Result<()> {
        launch(&self.kernel, &self.shape_of_launch(blocks), arguments)
    }

    fn blocks(&self, shape: Shape) -> Result<[u32; 3]> {
        self.directives.blocks(shape, self.multiprocessors)
    }

    /// Blocks of a launch that adds up `elements` numbers. Of a fixed grid no more than there is work for, an element a
    /// thread.
    fn blocks_of_pass(&self, elements: u64) -> Result<u64> {
        let [blocks, ..] = self.blocks(Shape::Vector(elements))?;
        let blocks = u64::from(blocks);
        let is_fixed = matches!(self.directives.grid, Grid::PerMultiprocessor(_) | Grid::Blocks(_));
        let useful = elements.div_ceil(self.directives.threads_of_block().into()).max(1);
        let blocks = if is_fixed { blocks.min(useful) } else { blocks };
        if blocks > 1 && blocks >= elements {
            return Err(LabError::Unsupported(format!(
                "{} would become {}, without end",
                plural(elements, "number"),
                plural(blocks, "sum")
            )));
        }
        Ok(blocks)
    }

    /// Launches until one sum is left, which goes to the output.
    fn reduce(&self, run: &Run, elements: u64) -> Result<()> {
        let (input, output) = (run.pointers[0], run.pointers[1]);
        let (mut from, mut left, mut pass) = (input, elements, 0);
        loop {
            let blocks = self.blocks_of_pass(left)?;
            let to = if blocks == 1 { output } else { run.scratch[pass % 2] };
            self.start([blocks as u32, 1, 1], &Arguments::new().value(from).value(to).value(left))?;
            if blocks == 1 {
                return Ok(());
            }
            (from, left, pass) = (to, blocks, pass + 1);
        }
    }

    fn maps_of(&self, run: &Run) -> Result<Maps> {
        let arrays = run.problem.arrays();
        let operands = [Operand::A, Operand::B, Operand::C];
        let mut maps = Vec::new();
        for ((operand, array), &pointer) in operands.into_iter().zip(&arrays).zip(&run.pointers) {
            let Some(map) = self.directives.tensor_map(operand) else { continue };
            let tiled = Tiled {
                pointer,
                element_bytes: run.problem.dtype.bytes(),
                rows: array.elements / array.columns.max(1),
                columns: array.columns,
                box_rows: map.rows,
                box_columns: map.columns,
                swizzle: map.swizzle,
            };
            maps.push((operand, TensorMap::new(&self.device, &tiled)?));
        }
        Ok(maps)
    }

    fn multiply(&mut self, run: &Run, m: u64, n: u64, k: u64) -> Result<()> {
        self.prepare(run)?;
        let maps = &self.maps[&(run.pointers.clone(), run.problem)];
        let mut arguments = Arguments::new();
        for (operand, &pointer) in [Operand::A, Operand::B, Operand::C].into_iter().zip(&run.pointers) {
            let map = maps.iter().find(|(of, _)| *of == operand);
            arguments = match map {
                Some((_, map)) => arguments.tensor_map(map),
                None => arguments.value(pointer),
            };
        }
        let arguments = arguments.value(m as i32).value(n as i32).value(k as i32);
        self.start(self.blocks(run.problem.shape)?, &arguments)
    }
}

impl Candidate for KernelCandidate {
    fn scratch(&self, problem: &Problem) -> Result<u64> {
        match problem.operation {
            Operation::Reduction => self.blocks_of_pass(problem.shape.elements()),
            _ => Ok(0),
        }
    }

    fn prepare(&mut self, run: &Run) -> Result<()> {
        let key = (run.pointers.clone(), run.problem);
        if run.problem.operation == Operation::Gemm && !self.maps.contains_key(&key) {
            let maps = self.maps_of(run)?;
            self.maps.insert(key, maps);
        }
        Ok(())
    }

    fn launch(&mut self, run: &Run) -> Result<()> {
        let pointers = &run.pointers;
        match (run.problem.operation, run.problem.shape) {
            (Operation::Saxpy, shape) => {
                let arguments = Arguments::new().value(run.factor).value(pointers[0]).value(pointers[1]);
                self.start(self.blocks(shape)?, &arguments.value(shape.elements()))
            }
            (Operation::Transpose, Shape::Matrix { rows, columns }) => {
                let arguments = Arguments::new().value(pointers[0]).value(pointers[1]);
                self.start(self.blocks(run.problem.shape)?, &arguments.value(rows as i32).value(columns as i32))
            }
            (Operation::Reduction, shape) => self.reduce(run, shape.elements()),
            (Operation::Gemm, Shape::Product { m, n, k }) => self.multiply(run, m, n, k),
            (operation, shape) => Err(LabError::Unsupported(format!("{operation:?} of {shape} is no problem"))),
        }
    }
}
