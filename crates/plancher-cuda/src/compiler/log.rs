//! Reading NVRTC's log: errors and warnings of the compiler, registers and spills from the assembler.

use super::KernelResources;

/// The resources of every kernel, by name.
pub(super) fn resources(log: &str) -> Vec<KernelResources> {
    let mut kernels: Vec<KernelResources> = Vec::new();
    // The name stands before the kernel's numbers; reports of functions that are no kernels have other names.
    let mut inside = false;
    for line in log.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|(_, rest)| rest) {
            let name = rest.split('\'').next().unwrap_or_default();
            kernels.push(KernelResources {
                name: name.to_owned(),
                registers: 0,
                spill_stores: 0,
                spill_loads: 0,
                stack: 0,
                shared_memory: 0,
                barriers: 0,
            });
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            inside = kernels.last().is_some_and(|kernel| kernel.name == name.trim());
        } else if let Some(kernel) = kernels.last_mut().filter(|_| inside) {
            if line.contains("bytes stack frame") {
                kernel.stack = before(line, "bytes stack frame");
                kernel.spill_stores = before(line, "bytes spill stores");
                kernel.spill_loads = before(line, "bytes spill loads");
            } else if let Some((_, used)) = line.split_once("Used ") {
                kernel.registers = before(used, "registers");
                kernel.barriers = used.split_once("used ").map_or(0, |(_, rest)| before(rest, "barriers"));
                kernel.shared_memory = before(used, "bytes smem");
            }
        }
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    kernels
}

/// The number that stands right before `unit`, 0 if there is none.
fn before(line: &str, unit: &str) -> u32 {
    let Some((head, _)) = line.split_once(unit) else { return 0 };
    let head = head.trim_end();
    let digits = head.len() - head.bytes().rev().take_while(u8::is_ascii_digit).count();
    head[digits..].parse().unwrap_or(0)
}

/// The first error; if none is marked as one, the first line that says something.
pub(super) fn first_error(log: &str) -> String {
    let marked = log.lines().find(|line| line.contains("error"));
    let line = marked.or_else(|| log.lines().find(|line| !line.trim().is_empty()));
    line.map_or_else(|| "the compiler does not say why".to_owned(), |line| line.trim().to_owned())
}

/// Every warning's line, except those about unused helpers.
pub(super) fn warnings(log: &str) -> Vec<String> {
    let is_warning = |line: &&str| {
        line.to_ascii_lowercase().contains("warning") && !line.contains("177-D") && !line.starts_with("Remark")
    };
    log.lines().filter(is_warning).map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
matvec.cu(7): warning #177-D: function \"helper\" was declared but never referenced
matvec.cu(9): warning #550-D: variable \"x\" was set but never used
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'wide' for 'sm_90a'
ptxas info    : Function properties for wide
ptxas         .     168 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 48 registers, used 2 barriers, 168 bytes cumulative stack size, 1152 bytes smem, 8 bytes cmem[2]
ptxas info    : Compile time = 35.675 ms
ptxas info    : Function properties for helper
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function 'narrow' for 'sm_90a'
ptxas info    : Function properties for narrow
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
";

    #[test]
    fn registers_spills_and_shared_memory_are_read() {
        let kernels = resources(LOG);
        assert_eq!(kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>(), ["narrow", "wide"]);
        let wide = KernelResources {
            name: "wide".into(),
            registers: 48,
            spill_stores: 12,
            spill_loads: 16,
            stack: 168,
            shared_memory: 1152,
            barriers: 2,
        };
        assert_eq!(kernels[1], wide);
        assert_eq!((kernels[0].registers, kernels[0].stack), (14, 0));
    }

    #[test]
    fn warnings_are_kept_except_for_unused_helpers() {
        assert_eq!(warnings(LOG), ["matvec.cu(9): warning #550-D: variable \"x\" was set but never used"]);
    }

    #[test]
    fn the_first_error_is_found() {
        let log = "a.cu(1): warning: x\na.cu(3): error: identifier \"y\" is undefined\n\n1 error detected.";
        assert_eq!(first_error(log), "a.cu(3): error: identifier \"y\" is undefined");
        assert_eq!(first_error("\n  something else\n"), "something else");
        assert_eq!(first_error(""), "the compiler does not say why");
    }
}
