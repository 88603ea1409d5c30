//! The `// lab:` lines of a kernel file, which say how it is launched. Files come from learners: whatever they say is a
//! launch that the driver can be asked for, or an error that names the line.

use plancher_cuda::Architecture;

use crate::{Dtype, LabError, Operation, Result, Shape};

/// The most threads of a block.
pub const MOST_THREADS: u32 = 1024;
/// The most dynamic shared memory that may be asked for, in bytes; the device decides.
const MOST_SHARED: u32 = 1 << 20;
/// The most blocks of a cluster.
const MOST_CLUSTER: u32 = 16;
/// The most blocks along y.
const MOST_ROWS_OF_BLOCKS: u64 = 65_535;

/// How a kernel is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directives {
    /// Threads of a block along x and y.
    pub threads: [u32; 2],
    /// How many blocks.
    pub grid: Grid,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Blocks of a cluster along x.
    pub cluster: Option<u32>,
    /// The least architecture, or the only one where it ends with `a`.
    pub requires: Option<Architecture>,
    /// The kernel takes only sizes that are multiples of this.
    pub multiple: u64,
    /// The numbers of a learner's file, where the step has kernels in several.
    pub dtype: Option<Dtype>,
    /// Operands that come as tensor maps instead of pointers.
    pub tensor_maps: Vec<TensorMap>,
}

/// How many blocks there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// A block for so many elements.
    PerBlock(u64),
    /// So many blocks on each multiprocessor.
    PerMultiprocessor(u32),
    /// A block for each tile of the output (of the input for a transpose), columns along x.
    Tile {
        /// Columns of a tile.
        columns: u64,
        /// Its rows.
        rows: u64,
    },
    /// So many blocks.
    Blocks(u32),
}

/// An operand that comes as a tensor map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    /// Which one.
    pub operand: Operand,
    /// Rows of a box.
    pub rows: u32,
    /// Columns of a box, which lie side by side in memory.
    pub columns: u32,
    /// Bytes of the pattern in which pieces of 16 bytes change places in shared memory: 0 (none), 32, 64 or 128.
    pub swizzle: u32,
}

/// An operand of a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operand {
    /// The left matrix.
    A,
    /// The right one.
    B,
    /// The result.
    C,
}

impl Directives {
    /// Reads the directives of a file called `file`.
    ///
    /// # Errors
    /// If a directive is not known, is there twice, or has a value that makes no launch; if there is no number of threads
    /// or not exactly one grid.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let mut reader = Reader::default();
        for (line, directive) in lines(text) {
            let wrong = |problem: String| wrong(file, line, directive, problem);
            let (key, value) = directive.split_once('=').ok_or_else(|| wrong("write `name = value`".to_owned()))?;
            reader.take(key.trim(), value.trim()).map_err(wrong)?;
        }
        reader.finish().map_err(|problem| LabError::NoDirective { file: file.to_owned(), problem })
    }

    /// The same for a kernel of an operation, which not all directives fit.
    ///
    /// # Errors
    /// As [`Self::parse`]; and if a directive says nothing of such a kernel.
    pub fn parse_for(operation: Operation, file: &str, text: &str) -> Result<Self> {
        let directives = Self::parse(file, text)?;
        let of_vectors = matches!(operation, Operation::Saxpy | Operation::Reduction);
        if of_vectors && matches!(directives.grid, Grid::Tile { .. }) {
            let problem = format!("a vector of `{}` has no columns and rows: write per_block", operation.kernel());
            return Err(at(file, text, "tile", problem));
        }
        if operation != Operation::Gemm && !directives.tensor_maps.is_empty() {
            let problem = format!("only matrix products take tensor maps, and this is `{}`", operation.kernel());
            return Err(at(file, text, "tensor_maps", problem));
        }
        Ok(directives)
    }

    /// Threads of a block.
    #[must_use]
    pub const fn threads_of_block(&self) -> u32 {
        self.threads[0] * self.threads[1]
    }

    /// The tensor map of an operand, if it comes as one.
    #[must_use]
    pub fn tensor_map(&self, operand: Operand) -> Option<&TensorMap> {
        self.tensor_maps.iter().find(|map| map.operand == operand)
    }

    /// The grid of a problem, `[x, y, z]`: at least one block, so that an empty problem is launched too, and along x a
    /// multiple of the cluster.
    ///
    /// # Errors
    /// If it is larger than a grid can be.
    pub fn blocks(&self, shape: Shape, multiprocessors: u32) -> Result<[u32; 3]> {
        let (x, y) = match (self.grid, shape) {
            (Grid::PerBlock(elements), shape) => (shape.elements().div_ceil(elements), 1),
            (Grid::PerMultiprocessor(blocks), _) => (u64::from(blocks) * u64::from(multiprocessors), 1),
            (Grid::Blocks(blocks), _) => (blocks.into(), 1),
            (Grid::Tile { columns, rows: _ }, Shape::Vector(elements)) => (elements.div_ceil(columns), 1),
            (Grid::Tile { columns, rows }, Shape::Matrix { rows: of_rows, columns: of_columns }) => {
                (of_columns.div_ceil(columns), of_rows.div_ceil(rows))
            }
            (Grid::Tile { columns, rows }, Shape::Product { m, n, .. }) => (n.div_ceil(columns), m.div_ceil(rows)),
        };
        let x = x.max(1).next_multiple_of(self.cluster.unwrap_or(1).into());
        let y = y.max(1);
        match i32::try_from(x) {
            Ok(x) if y <= MOST_ROWS_OF_BLOCKS => Ok([x as u32, y as u32, 1]),
            _ => Err(LabError::Unsupported(format!(
                "{shape} needs {x} x {y} blocks, and a grid has at most {} x {MOST_ROWS_OF_BLOCKS}",
                i32::MAX
            ))),
        }
    }
}

/// The directives of a text with their lines, counted from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let directive = line.trim_start().strip_prefix("//")?.trim_start().strip_prefix("lab:")?;
        // What stands behind a second comment is for people.
        Some((index + 1, directive.split("//").next().unwrap_or_default().trim()))
    })
}

fn wrong(file: &str, line: usize, directive: &str, problem: String) -> LabError {
    let directive = directive.chars().take(80).collect();
    LabError::Directive { file: file.to_owned(), line, directive, problem }
}

/// What is wrong with the directive called `name`.
pub(crate) fn at(file: &str, text: &str, name: &str, problem: String) -> LabError {
    let is_it = |directive: &str| directive.split_once('=').is_some_and(|(key, _)| key.trim() == name);
    match lines(text).find(|(_, directive)| is_it(directive)) {
        Some((line, directive)) => wrong(file, line, directive, problem),
        None => LabError::NoDirective { file: file.to_owned(), problem },
    }
}

#[derive(Default)]
struct Reader {
    threads: Option<[u32; 2]>,
    grid: Option<Grid>,
    shared: Option<u32>,
    cluster: Option<u32>,
    requires: Option<Architecture>,
    multiple: Option<u64>,
    dtype: Option<Dtype>,
    tensor_maps: Option<Vec<TensorMap>>,
}

impl Reader {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "threads" => {
                let threads = if value.contains('x') {
                    let (x, y) = pair(value, MOST_THREADS.into())?;
                    [x as u32, y as u32]
                } else {
                    [number(value, MOST_THREADS.into())? as u32, 1]
                };
                if threads[0] * threads[1] > MOST_THREADS {
                    return Err(format!("a block has at most {MOST_THREADS} threads"));
                }
                set(&mut self.threads, threads)
            }
            "per_block" => self.grid(Grid::PerBlock(number(value, i32::MAX as u64)?)),
            "blocks_per_sm" => self.grid(Grid::PerMultiprocessor(number(value, 64)? as u32)),
            "tile" => {
                let (columns, rows) = pair(value, 1 << 20)?;
                self.grid(Grid::Tile { columns, rows })
            }
            "blocks" => self.grid(Grid::Blocks(number(value, 1 << 24)? as u32)),
            "shared" => set(&mut self.shared, number(value, MOST_SHARED.into())? as u32),
            "cluster" => set(&mut self.cluster, number(value, MOST_CLUSTER.into())? as u32),
            "requires" => {
                let architecture = value.parse().map_err(|error: plancher_cuda::NoArchitecture| error.to_string())?;
                set(&mut self.requires, architecture)
            }
            "multiple" => set(&mut self.multiple, number(value, 1 << 12)?),
            "dtype" => {
                let dtype = [Dtype::F32, Dtype::Bf16].into_iter().find(|dtype| dtype.to_string() == value);
                set(&mut self.dtype, dtype.ok_or_else(|| format!("`{value}` is neither f32 nor bf16"))?)
            }
            "tensor_maps" => set(&mut self.tensor_maps, tensor_maps(value)?),
            _ => Err("there is no such directive: threads, per_block, blocks_per_sm, tile, blocks, shared, cluster, \
                      requires, multiple, dtype, tensor_maps"
                .to_owned()),
        }
    }

    fn grid(&mut self, grid: Grid) -> Result<(), String> {
        if self.grid.is_some() {
            return Err("there is a grid already: write one of per_block, blocks_per_sm, tile, blocks".to_owned());
        }
        self.grid = Some(grid);
        Ok(())
    }

    fn finish(self) -> Result<Directives, String> {
        let threads = self.threads.ok_or("there is no `// lab: threads = N`")?;
        let grid = self.grid.ok_or("there is no grid: write one of per_block, blocks_per_sm, tile, blocks")?;
        Ok(Directives {
            threads,
            grid,
            shared: self.shared.unwrap_or(0),
            cluster: self.cluster,
            requires: self.requires,
            multiple: self.multiple.unwrap_or(1),
            dtype: self.dtype,
            tensor_maps: self.tensor_maps.unwrap_or_default(),
        })
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.is_some() {
        return Err("it is there twice".to_owned());
    }
    *place = Some(value);
    Ok(())
}

/// A number from 1 to `most`.
fn number(text: &str, most: u64) -> Result<u64, String> {
    let number = text.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("`{text}` is no number from 1 to {most}"))
}

/// `128x64`.
fn pair(text: &str, most: u64) -> Result<(u64, u64), String> {
    let (first, second) = text.split_once('x').ok_or_else(|| format!("`{text}` is not of the form 128x64"))?;
    Ok((number(first, most)?, number(second, most)?))
}

/// `a:128x64 b:256x64 swizzle=128`.
fn tensor_maps(text: &str) -> Result<Vec<TensorMap>, String> {
    let (mut maps, mut swizzle) = (Vec::<TensorMap>::new(), None);
    for word in text.split_whitespace() {
        if let Some(value) = word.strip_prefix("swizzle=") {
            let value = value.parse().ok().filter(|value| [0, 32, 64, 128].contains(value));
            let value = value.ok_or_else(|| format!("`{word}` is none of 0, 32, 64, 128"))?;
            set(&mut swizzle, value)?;
            continue;
        }
        let (name, size) = word.split_once(':').ok_or_else(|| format!("`{word}` is not of the form a:128x64"))?;
        let operand = match name {
            "a" => Operand::A,
            "b" => Operand::B,
            "c" => Operand::C,
            _ => return Err(format!("`{name}` is none of a, b, c")),
        };
        if maps.iter().any(|map| map.operand == operand) {
            return Err(format!("`{name}` is there twice"));
        }
        // The driver takes boxes of at most 256 elements a side.
        let (rows, columns) = pair(size, 256)?;
        maps.push(TensorMap { operand, rows: rows as u32, columns: columns as u32, swizzle: 0 });
    }
    if maps.is_empty() {
        return Err("it names no operand".to_owned());
    }
    for map in &mut maps {
        map.swizzle = swizzle.unwrap_or(0);
    }
    Ok(maps)
}

#[cfg(test)]
mod tests;
