//! Compiling a kernel file: its constants, what the assembler says it needs, and how many of its blocks a multiprocessor
//! holds.

use plancher_cuda::catalogue::{Disassembler, Instructions};
use plancher_cuda::{Architecture, Compiler, Cubin, KernelResources, Properties, Specialization};
use serde::Serialize;

use crate::record::Resources;
use crate::step::OccupancyLimiter;
use crate::{Directives, Dtype, LabError, Operation, Result, includes, parameters, plural};

/// What code is compiled for, and what one of its multiprocessors has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The architecture.
    pub architecture: Architecture,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory that a block may have, bytes.
    pub shared_of_block: u32,
    /// Shared memory of a multiprocessor, bytes.
    pub shared: u32,
    /// Registers of a multiprocessor.
    pub registers: u32,
    /// The most threads that a multiprocessor holds.
    pub threads: u32,
}

impl Target {
    /// A device.
    #[must_use]
    pub fn of(device: &Properties) -> Self {
        Self {
            architecture: device.architecture(),
            multiprocessors: device.multiprocessors,
            shared_of_block: device.shared_memory_per_block,
            shared: device.shared_memory_per_multiprocessor,
            registers: device.registers_per_multiprocessor,
            threads: device.threads_per_multiprocessor,
        }
    }

    /// An architecture without a device: the figures of the CUDA C++ Programming Guide's table of compute capabilities, and
    /// the multiprocessors of an H200.
    #[must_use]
    pub fn without_device(architecture: Architecture) -> Self {
        let (shared, threads) = match architecture.number() {
            90 | 100 | 103 => (228, 2048),
            80 => (164, 2048),
            75 => (64, 1024),
            _ => (100, 1536),
        };
        Self {
            architecture,
            multiprocessors: 132,
            shared_of_block: (shared - 1) << 10,
            shared: shared << 10,
            registers: 65_536,
            threads,
        }
    }

    /// The most blocks that a multiprocessor holds.
    const fn blocks(&self) -> u32 {
        match self.architecture.number() {
            75 | 86 => 16,
            89 | 120 | 121 => 24,
            _ => 32,
        }
    }

    /// How many blocks of such a kernel each thing would let a multiprocessor hold.
    #[must_use]
    pub fn limits(&self, registers: u32, shared: u32, threads: u32) -> [(u32, OccupancyLimiter); 4] {
        let warps = threads.div_ceil(32).max(1);
        // Registers are dealt out to warps in units of 256; a block's own use of shared memory is 1 KiB.
        let of_warp = (registers.max(1) * 32).next_multiple_of(256);
        [
            (self.threads / 32 / warps, OccupancyLimiter::Threads),
            (self.registers / of_warp / warps, OccupancyLimiter::Registers),
            (self.shared / (shared.next_multiple_of(128) + 1024), OccupancyLimiter::SharedMemory),
            (self.blocks(), OccupancyLimiter::Blocks),
        ]
    }

    /// How many blocks of such a kernel a multiprocessor holds, and what keeps more from it.
    #[must_use]
    pub fn occupancy(&self, registers: u32, shared: u32, threads: u32) -> (u32, OccupancyLimiter) {
        let limits = self.limits(registers, shared, threads);
        limits.into_iter().min_by_key(|(blocks, _)| *blocks).unwrap_or((0, OccupancyLimiter::Threads))
    }
}

/// A kernel file, compiled.
#[derive(Debug)]
pub struct Compiled {
    /// How it is launched.
    pub directives: Directives,
    /// The machine code.
    pub cubin: Cubin,
    /// The constants and options, as the record has them.
    pub options: Vec<String>,
    /// What it needs of a multiprocessor.
    pub resources: Resources,
}

/// The constants with which a file is compiled.
pub(crate) fn constants(operation: Operation, dtype: Dtype, target: &Target) -> Specialization {
    let constants = Specialization::new()
        .define("MULTIPROCESSORS", target.multiprocessors)
        .define("SHARED_MEMORY", target.shared_of_block);
    match operation {
        Operation::Transpose => constants
            .define("ELEMENT", if dtype == Dtype::F32 { "float" } else { "unsigned short" })
            .define("ELEMENT_BYTES", dtype.bytes()),
        _ => constants,
    }
}

/// Compiles a kernel file for one type of numbers.
///
/// # Errors
/// If a directive is wrong, the file does not compile, has no kernel of the operation's name, or is for another GPU.
pub fn compile(
    compiler: &Compiler,
    (name, text): (&str, &str),
    operation: Operation,
    dtype: Dtype,
    target: &Target,
) -> Result<Compiled> {
    let file = format!("{name}.cu");
    let directives = Directives::parse_for(operation, &file, text)?;
    includes::refuse(&file, text)?;
    if let Some(needed) = directives.requires.filter(|needed| !fits(*needed, target.architecture)) {
        return Err(LabError::Unsupported(format!("`{file}` is for {needed}, and this is {}", target.architecture)));
    }
    if target.architecture.number() < 90 {
        let newer = [("cluster", directives.cluster.is_some()), ("tensor_maps", !directives.tensor_maps.is_empty())];
        if let Some((directive, _)) = newer.into_iter().find(|(_, is_there)| *is_there) {
            let problem = format!("`{file}`: `{directive}` needs sm_90 or newer, and this is {}", target.architecture);
            return Err(LabError::Unsupported(problem));
        }
    }
    let constants = constants(operation, dtype, target);
    let of = (operation, dtype, &directives);
    let cubin = parameters::compile(compiler, (name, text), of, &constants, target.architecture)?;
    let kernel = cubin.kernel(operation.kernel()).ok_or_else(|| {
        let found: Vec<&str> = cubin.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        LabError::Unsupported(format!(
            "`{file}` has no kernel `{}` (extern \"C\" __global__); it has: {}",
            operation.kernel(),
            if found.is_empty() { "none".to_owned() } else { found.join(", ") }
        ))
    })?;
    let threads = directives.threads_of_block();
    let shared_bytes = kernel.shared_memory.saturating_add(directives.shared);
    if let Some(problem) = no_launch(&directives, kernel, cubin.most_threads(operation.kernel()), target) {
        return Err(LabError::Unsupported(format!("`{file}`: {problem}")));
    }
    let (blocks_per_multiprocessor, limiter) = target.occupancy(kernel.registers, shared_bytes, threads);
    let resources = Resources {
        registers: kernel.registers,
        spill_bytes: kernel.spill_stores.saturating_add(kernel.spill_loads),
        shared_bytes,
        threads,
        blocks_per_multiprocessor,
        limiter,
    };
    let mut options = vec![format!("--gpu-architecture={}", target.architecture)];
    options.extend(constants.definitions().map(|(name, value)| format!("-D{name}={value}")));
    Ok(Compiled { directives, cubin, options, resources })
}

/// Why not a single block of a kernel can be launched as its directives say, if it is so. `bound` are the most threads that its
/// `__launch_bounds__` allow.
fn no_launch(directives: &Directives, kernel: &KernelResources, bound: Option<u32>, target: &Target) -> Option<String> {
    let (threads, registers) = (directives.threads_of_block(), kernel.registers);
    if let Some(bound) = bound.filter(|&bound| threads > bound) {
        return Some(format!("`threads` is {threads}, and the kernel's `__launch_bounds__` allow {bound}"));
    }
    let (own, dynamic, most) = (kernel.shared_memory, directives.shared, target.shared_of_block);
    if own.saturating_add(dynamic) > most {
        return Some(format!(
            "`shared` is {dynamic} and the kernel declares {} of shared memory, and a block has at most {most}",
            plural(own, "byte")
        ));
    }
    let (blocks, limiter) = target.occupancy(registers, own + dynamic, threads);
    (blocks == 0 && limiter == OccupancyLimiter::Registers).then(|| {
        format!(
            "`threads` is {threads}, each with {}, and a multiprocessor has {}: fewer threads, or \
             `__launch_bounds__({threads})`",
            plural(registers, "register"),
            target.registers
        )
    })
}

/// Whether code that needs `needed` runs on `architecture`: code for one chip (`a`) on that one only.
fn fits(needed: Architecture, architecture: Architecture) -> bool {
    if needed.to_string().ends_with('a') { needed == architecture } else { needed.number() <= architecture.number() }
}

/// What can be said of a kernel file without running it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompileReport {
    /// The file's name without its ending.
    pub name: String,
    /// Its numbers.
    pub dtype: Dtype,
    /// For what it was compiled.
    pub architecture: Architecture,
    /// What it needs of a multiprocessor.
    pub resources: Resources,
    /// Warnings of the compiler.
    pub warnings: Vec<String>,
    /// Instructions that say something of a kernel, with how often each stands in the machine code; empty where there is no
    /// disassembler.
    pub instructions: Vec<(String, usize)>,
    /// What the figures suggest, one a line.
    pub hints: Vec<String>,
}

/// The instructions that a report counts: loads and stores by width, shared memory, arithmetic, the copy engine.
const TELLING: [&str; 17] = [
    "LDG.E.128",
    "LDG.E.64",
    "LDG.E",
    "STG.E.128",
    "STG.E.64",
    "STG.E",
    "LDS",
    "STS",
    "BAR",
    "SHFL",
    "FFMA",
    "DFMA",
    "HMMA",
    "HGMMA",
    "UBLKCP",
    "UTMALDG",
    "LDL",
];

/// Compiles a file and says what the machine code tells.
///
/// # Errors
/// As [`compile`].
pub fn compile_only(
    compiler: &Compiler,
    (name, text): (&str, &str),
    operation: Operation,
    dtype: Dtype,
    target: &Target,
) -> Result<CompileReport> {
    let compiled = compile(compiler, (name, text), operation, dtype, target)?;
    let disassembly = Disassembler::find().and_then(|program| program.disassemble(compiled.cubin.code()));
    let instructions = disassembly.map(|text| {
        let instructions = Instructions::read(&text);
        let count = |name: &str| (name.to_owned(), instructions.count(operation.kernel(), name));
        TELLING.iter().map(|name| count(name)).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    });
    let instructions = instructions.unwrap_or_default();
    let hints = hints(operation, target, &compiled.resources, &instructions);
    Ok(CompileReport {
        name: name.to_owned(),
        dtype,
        architecture: target.architecture,
        resources: compiled.resources,
        warnings: compiled.cubin.warnings,
        instructions,
        hints,
    })
}

/// What the figures suggest.
fn hints(
    operation: Operation,
    target: &Target,
    resources: &Resources,
    instructions: &[(String, usize)],
) -> Vec<String> {
    let count = |name: &str| instructions.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
    let mut hints = Vec::new();
    if resources.spill_bytes > 0 {
        hints.push(format!(
            "a thread spills {} to local memory: use fewer registers, or let a block have fewer threads",
            plural(resources.spill_bytes, "byte")
        ));
    }
    let threads = resources.blocks_per_multiprocessor * resources.threads;
    if 2 * threads < target.threads {
        hints.push(format!(
            "a multiprocessor holds {threads} of {} threads, limited by {}: each must have more under way",
            target.threads, resources.limiter
        ));
    }
    let moves_memory = matches!(operation, Operation::Saxpy | Operation::Reduction | Operation::Transpose);
    let bulk = count("UBLKCP") + count("UTMALDG");
    if moves_memory && !instructions.is_empty() && count("LDG.E.128") + bulk == 0 {
        hints.push(
            "no load is wider than 8 bytes: 16-byte loads put four times as much under way as 4-byte ones".to_owned(),
        );
    }
    if count("DFMA") > 0 {
        hints.push("there is arithmetic in double precision (DFMA)".to_owned());
    }
    if operation == Operation::Gemm && !instructions.is_empty() && count("LDS") + bulk == 0 {
        hints.push("nothing is read from shared memory: each operand comes from the caches again and again".to_owned());
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hopper() -> Target {
        Target::without_device(Architecture::of_capability(9, 0))
    }

    #[test]
    fn occupancy_is_what_the_scarcest_allows() {
        let of = |registers, shared, threads| hopper().occupancy(registers, shared, threads);
        assert_eq!(of(16, 0, 256), (8, OccupancyLimiter::Threads));
        assert_eq!(of(64, 0, 256), (4, OccupancyLimiter::Registers));
        assert_eq!(of(32, 100 << 10, 256), (2, OccupancyLimiter::SharedMemory));
        assert_eq!(of(32, 0, 32), (32, OccupancyLimiter::Blocks));
        assert_eq!(of(255, 0, 1024), (0, OccupancyLimiter::Registers));
    }

    #[test]
    fn older_and_newer_multiprocessors_hold_what_they_do() {
        let threads = |major, minor| Target::without_device(Architecture::of_capability(major, minor)).threads;
        assert_eq!([threads(7, 5), threads(8, 0), threads(8, 9), threads(10, 3)], [1024, 2048, 1536, 2048]);
    }

    #[test]
    fn code_for_one_chip_runs_on_that_one_only() {
        let of = |text: &str| text.parse::<Architecture>().expect("an architecture");
        assert!(fits(of("sm_80"), of("sm_90a")) && fits(of("sm_90a"), of("sm_90a")));
        assert!(!fits(of("sm_90a"), of("sm_100a")) && !fits(of("sm_90"), of("sm_80")));
    }

    #[test]
    fn hints_name_what_costs() {
        let resources = |spill_bytes, blocks_per_multiprocessor| Resources {
            registers: 64,
            spill_bytes,
            shared_bytes: 0,
            threads: 256,
            blocks_per_multiprocessor,
            limiter: OccupancyLimiter::Registers,
        };
        let code = [("LDG.E".to_owned(), 2), ("DFMA".to_owned(), 1)];
        let found = hints(Operation::Saxpy, &hopper(), &resources(8, 2), &code).join("\n");
        for part in [
            "a thread spills 8 bytes",
            "512 of 2048 threads, limited by registers:",
            "16-byte loads",
            "double precision",
        ] {
            assert!(found.contains(part), "{found}");
        }
        let code = [("LDG.E.128".to_owned(), 2)];
        assert_eq!(hints(Operation::Saxpy, &hopper(), &resources(0, 8), &code), Vec::<String>::new());
    }
}
