//! What a learner begins with: the task, the launch as directives, the signature with what its arguments are, and the
//! rules that the verdict goes by.

use plancher_lab::{Dtype, Operation, Step};

use super::text::wrapped;

/// The whole file.
pub(super) fn text(step: &Step, operation: Operation, dtype: Dtype, file: &str) -> String {
    let comment = |text: &str| wrapped(text, "// ", 100);
    let mut out = comment(&format!("{}. {} {}", step.title, step.question, rules(operation)));
    if !step.task.is_empty() {
        out.push_str("//\n");
        out.push_str(&comment(&format!("Task: {}", step.task)));
    }
    out.push_str("//\n");
    out.push_str(&comment(&format!(
        "Goal: {}; then {}. Judge it with: plancher lab check {} {file}",
        step.plan.text, step.bar.text, step.id
    )));
    out.push_str("//\n");
    out.push_str(&comment(LAUNCH));
    out.push_str("//\n");
    out.push_str(launch(operation));
    if operation == Operation::Gemm && dtype == Dtype::Bf16 {
        out.push_str("// lab: dtype = bf16\n");
    }
    out.push('\n');
    out.push_str(&signature(operation, dtype));
    out
}

const LAUNCH: &str = "How it is launched, which is yours to change. `threads = 256` or `threads = 32x8` is a block; \
    exactly one of `per_block = N` (a block for N elements), `tile = COLUMNSxROWS` (a block for a tile), `blocks_per_sm = N` \
    (N blocks on each multiprocessor, whatever the size) and `blocks = N` is the grid; `shared = BYTES` is dynamic shared \
    memory. The macros MULTIPROCESSORS and SHARED_MEMORY say what the GPU has. Nothing can be included.";

fn launch(operation: Operation) -> &'static str {
    match operation {
        Operation::Saxpy => "// lab: threads = 256\n// lab: per_block = 256\n",
        Operation::Transpose => "// lab: threads = 32x8\n// lab: tile = 32x32\n",
        Operation::Reduction => "// lab: threads = 256\n// lab: per_block = 512\n",
        Operation::Gemm => "// lab: threads = 16x16\n// lab: tile = 16x16\n",
    }
}

/// What every kernel of the operation must bear.
fn rules(operation: Operation) -> &'static str {
    match operation {
        Operation::Saxpy => {
            "y <- a x + y for n elements. n may be 0 or no multiple of anything, and x and y may begin at any element, not \
             only at a boundary of 16 bytes; infinities and NaN must come out as arithmetic has them."
        }
        Operation::Transpose => {
            "`in` is (rows, columns), `out` is (columns, rows), both row-major. ELEMENT is `float`, and then again `unsigned \
             short` (the bits of a bf16): the file is compiled for both, and every bit must arrive. Sides may be 0 or no \
             multiple of anything, and both matrices may begin at any element."
        }
        Operation::Reduction => {
            "Every block adds up a part of x and writes one sum to sums[blockIdx.x]; the kernel is launched again on the sums \
             until one is left, and all launches are timed. n may be 0 (the sum is 0) or no multiple of anything, and x may \
             begin at any element. The error must be that of adding in pairs or in blocks, not that of one long chain."
        }
        Operation::Gemm => {
            "c = a b, row-major, for any m, n and k (0 too), which may be no multiple of anything; the matrices may begin at \
             any element. Sums are f32: a result that is less exact fails, and so does one that is more exact than f32 can be."
        }
    }
}

fn signature(operation: Operation, dtype: Dtype) -> String {
    let (parameters, hint): (&[(&str, &str)], &str) = match (operation, dtype) {
        (Operation::Saxpy, _) => (
            &[("float a", ""), ("const float* x", "n"), ("float* y", "n"), ("unsigned long long n", "")],
            "Which element is this thread's? Is there one?",
        ),
        (Operation::Transpose, _) => (
            &[
                ("const ELEMENT* in", "(rows, columns)"),
                ("ELEMENT* out", "(columns, rows)"),
                ("int rows", ""),
                ("int columns", ""),
            ],
            "Which way do neighbouring threads walk when they read, and which way when they write?",
        ),
        (Operation::Reduction, _) => (
            &[("const float* x", "n"), ("float* sums", "one for each block"), ("unsigned long long n", "")],
            "Who adds what, and who waits for whom?",
        ),
        (Operation::Gemm, Dtype::F32) => (
            &[
                ("const float* a", "(m, k)"),
                ("const float* b", "(k, n)"),
                ("float* c", "(m, n)"),
                ("int m", ""),
                ("int n", ""),
                ("int k", ""),
            ],
            "How often is each element of a and b read from far away?",
        ),
        (Operation::Gemm, Dtype::Bf16) => (
            &[
                ("const unsigned short* a", "(m, k), bf16"),
                ("const unsigned short* b", "(n, k), bf16: b is transposed"),
                ("unsigned short* c", "(m, n), bf16"),
                ("int m", ""),
                ("int n", ""),
                ("int k", ""),
            ],
            "How often is each element of a and b read from far away?",
        ),
    };
    let lines = parameters.iter().enumerate().map(|(index, (parameter, shape))| {
        let end = if index + 1 < parameters.len() { "," } else { ") {" };
        let comment = if shape.is_empty() { String::new() } else { format!(" // {shape}") };
        format!("    {parameter}{end}{comment}\n")
    });
    format!("extern \"C\" __global__ void {}(\n{}    // {hint}\n}}\n", operation.kernel(), lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use plancher_lab::Directives;
    use plancher_lab::catalogue::STEPS;

    use super::*;

    #[test]
    fn every_skeleton_can_be_launched_as_it_is() {
        for step in STEPS {
            let Some(operation) = step.operation else { continue };
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let text = text(step, operation, dtype, "my.cu");
                Directives::parse("my.cu", &text).expect("its directives are right");
                assert!(text.contains(&format!("void {}(", operation.kernel())), "{text}");
                assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
            }
        }
    }

    #[test]
    fn a_skeleton_says_task_launch_and_signature() {
        let step = plancher_lab::catalogue::step("profiling").expect("there");
        // A step whose words no other test changes.
        insta::assert_snapshot!(text(step, Operation::Reduction, Dtype::F32, "my.cu"));
    }
}
