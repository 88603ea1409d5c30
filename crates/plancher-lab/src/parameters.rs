//! Whether a kernel's parameters are those of its step. Machine code has their sizes only; the types are the compiler's to know,
//! so it is asked: a few declarations behind the file, which become no code, compare them.

use plancher_cuda::{Architecture, Compiler, Cubin, CudaError, Specialization};

use crate::{Directives, Dtype, LabError, Operand, Operation, Result};

/// By which a failed comparison is known in the compiler's log.
const MARK: &str = "plancher: these are not the parameters of the step";

/// Names for types by their kind and size. `const`, `volatile` and `__restrict__` make no difference, nor do signs of integers,
/// and a type of the file's own passes for a number of its size.
const COMPARISON: &str = r#"
namespace plancher_lab {
enum kind { own, integer, real };
template <class T> struct kind_of { enum { value = int(own) }; };
template <> struct kind_of<float> { enum { value = real }; };
template <> struct kind_of<double> { enum { value = real }; };
template <> struct kind_of<bool> { enum { value = integer }; };
template <> struct kind_of<char> { enum { value = integer }; };
template <> struct kind_of<signed char> { enum { value = integer }; };
template <> struct kind_of<unsigned char> { enum { value = integer }; };
template <> struct kind_of<short> { enum { value = integer }; };
template <> struct kind_of<unsigned short> { enum { value = integer }; };
template <> struct kind_of<int> { enum { value = integer }; };
template <> struct kind_of<unsigned> { enum { value = integer }; };
template <> struct kind_of<long> { enum { value = integer }; };
template <> struct kind_of<unsigned long> { enum { value = integer }; };
template <> struct kind_of<long long> { enum { value = integer }; };
template <> struct kind_of<unsigned long long> { enum { value = integer }; };
template <class T> struct bare { typedef T type; };
template <class T> struct bare<const T> { typedef T type; };
template <class T> struct bare<volatile T> { typedef T type; };
template <class T> struct bare<const volatile T> { typedef T type; };
template <int bytes> struct bits { char contents[bytes]; };
template <class Found, class Wanted> struct fits {
    enum { value = sizeof(Found) == sizeof(Wanted) && int(kind_of<Found>::value) == int(kind_of<Wanted>::value) };
};
template <class Found, class Wanted> struct fits<Found*, Wanted> { enum { value = false }; };
template <class Found, class Wanted> struct fits<Found, Wanted*> { enum { value = false }; };
template <class Found, class Wanted> struct fits<Found*, Wanted*> {
    enum { found = kind_of<typename bare<Found>::type>::value, wanted = kind_of<Wanted>::value };
    enum { value = sizeof(Found) == sizeof(Wanted) && (int(found) == int(wanted) || int(found) == own || int(wanted) == own) };
};
template <class...> struct list {};
template <class Found, class Wanted> struct all_fit { enum { value = false }; };
template <> struct all_fit<list<>, list<>> { enum { value = true }; };
template <class Found, class... Others, class Wanted, class... More>
struct all_fit<list<Found, Others...>, list<Wanted, More...>> {
    enum { value = fits<Found, Wanted>::value && all_fit<list<Others...>, list<More...>>::value };
};
template <class Function, class Wanted> struct judged { enum { value = true }; };
template <class... Found, class Wanted> struct judged<void(Found...), Wanted> {
    static_assert(all_fit<list<Found...>, Wanted>::value, "MARK");
    enum { value = true };
};
}
"#;

/// A parameter of a step's kernel: as a learner writes it, and the type with which it is compared.
fn wanted(operation: Operation, dtype: Dtype, directives: &Directives) -> Vec<(String, &'static str)> {
    let same = |text: &str, compared| (text.to_owned(), compared);
    match operation {
        Operation::Saxpy => vec![
            same("float a", "float"),
            same("const float* x", "float*"),
            same("float* y", "float*"),
            same("unsigned long long n", "unsigned long long"),
        ],
        Operation::Transpose => {
            // What is only moved may be called anything.
            let compared = if dtype == Dtype::F32 { "bits<4>*" } else { "bits<2>*" };
            vec![
                same("const ELEMENT* in", compared),
                same("ELEMENT* out", compared),
                same("int rows", "int"),
                same("int columns", "int"),
            ]
        }
        Operation::Reduction => vec![
            same("const float* x", "float*"),
            same("float* sums", "float*"),
            same("unsigned long long n", "unsigned long long"),
        ],
        Operation::Gemm => {
            let (element, compared) =
                if dtype == Dtype::F32 { ("float", "float*") } else { ("unsigned short", "unsigned short*") };
            let operand = |operand, name: &str| {
                if directives.tensor_map(operand).is_some() {
                    return (format!("const __grid_constant__ tensor_map {name}"), "bits<128>");
                }
                let constant = if operand == Operand::C { "" } else { "const " };
                (format!("{constant}{element}* {name}"), compared)
            };
            let sides = ["m", "n", "k"].map(|side| (format!("int {side}"), "int"));
            [operand(Operand::A, "a"), operand(Operand::B, "b"), operand(Operand::C, "c")]
                .into_iter()
                .chain(sides)
                .collect()
        }
    }
}

/// Compiles a file, with the comparison behind it.
///
/// # Errors
/// If it does not compile, or its kernel's parameters are others.
pub(crate) fn compile(
    compiler: &Compiler,
    (name, text): (&str, &str),
    (operation, dtype, directives): (Operation, Dtype, &Directives),
    constants: &Specialization,
    architecture: Architecture,
) -> Result<Cubin> {
    let wanted = wanted(operation, dtype, directives);
    let kernel = operation.kernel();
    let types: Vec<&str> = wanted.iter().map(|(_, compared)| *compared).collect();
    let judged = format!("plancher_lab::judged<decltype({kernel}), plancher_lab::list<{}>>", types.join(", "));
    // The types stand in the namespace.
    let judged = judged.replace("bits<", "plancher_lab::bits<");
    let behind = format!("{text}\n{}\nstatic_assert({judged}::value, \"\");\n", COMPARISON.replace("MARK", MARK));
    let compile = |text: &str| compiler.compile_text(name, text, constants, architecture);
    match compile(&behind) {
        Ok(cubin) => Ok(cubin),
        Err(CudaError::Compile { problem, log, .. }) if problem.contains(MARK) => {
            let signature: Vec<&str> = wanted.iter().map(|(text, _)| text.as_str()).collect();
            let takes = found(&log).map_or_else(|| "other parameters".to_owned(), |found| format!("({found})"));
            Err(LabError::Unsupported(format!(
                "`{name}.cu`: `{kernel}` takes {takes}, and the kernel of the step takes ({})",
                signature.join(", ")
            )))
        }
        // What is wrong first is the file's own, or its kernel is not there under this name: without the comparison one knows.
        Err(CudaError::Compile { .. }) => Ok(compile(text)?),
        Err(error) => Err(error.into()),
    }
}

/// The parameters' types, as the compiler's log names them.
fn found(log: &str) -> Option<String> {
    let (_, rest) = log.split_once(MARK)?;
    let (_, rest) = rest.split_once("[with Found=<")?;
    // Behind it: `>, Wanted=…]`, and the types may have brackets of their own.
    let (found, _) = rest.split_once(", Wanted=")?;
    Some(found.trim_end().strip_suffix('>').unwrap_or(found).split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::STEPS;
    use crate::compile::{Target, constants};

    #[test]
    fn the_comparison_becomes_no_code() {
        let Ok(compiler) = Compiler::find() else {
            assert!(std::env::var_os("PLANCHER_REQUIRE_NVRTC").is_none(), "there is no NVRTC");
            return;
        };
        let target = Target::without_device(Architecture::of_capability(9, 0));
        for (step, operation) in STEPS.iter().filter_map(|step| Some((step, step.operation?))) {
            for (version, &dtype) in
                step.versions.iter().flat_map(|version| version.dtypes.iter().map(move |it| (version, it)))
            {
                let (constants, directives) =
                    (constants(operation, dtype, &target), version.directives().expect("right"));
                let file = (version.id, version.source);
                let of = (operation, dtype, &directives);
                let compared = compile(&compiler, file, of, &constants, target.architecture).expect("it compiles");
                let alone =
                    compiler.compile_text(file.0, file.1, &constants, target.architecture).expect("it compiles");
                // The same text twice may differ in how its lines are noted; a table of ours would be thousands of bytes.
                let more = compared.code().len().abs_diff(alone.code().len());
                assert!(more < 1024 && compared.kernels == alone.kernels, "{} in {dtype}: {more}", version.file);
                assert_eq!(compared.warnings, alone.warnings, "{} in {dtype}", version.file);
            }
        }
    }

    #[test]
    fn what_a_kernel_takes_is_read_from_the_log() {
        let log = format!(
            "a.cu(9): error: static assertion failed with \"{MARK}\"\n  detected during instantiation of class \"judged<void \
             (Found...), Wanted> [with Found=<float, pair<int,\n int> *>, Wanted=plancher_lab::list<float>]\" at line 3"
        );
        assert_eq!(found(&log).as_deref(), Some("float, pair<int, int> *"));
        assert_eq!((found(MARK), found("")), (None, None));
    }
}
