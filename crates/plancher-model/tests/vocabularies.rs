//! Tokenisation against llama.cpp's golden vocabularies: every case of every `.inp`/`.out` pair that `tests/fetch`
//! has put into `target/test-data/vocabularies`.

use std::path::{Path, PathBuf};

use plancher_model::{Gguf, GgufVocabulary, Tokenizer};

/// What stands between the texts of an `.inp` file.
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn test_data() -> PathBuf {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data");
    std::env::var_os("PLANCHER_TEST_DATA").map_or_else(default, Into::into)
}

fn tokenizer(path: &Path) -> Tokenizer {
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(path, &bytes).unwrap();
    Tokenizer::from_gguf(&GgufVocabulary::from_metadata(&gguf.metadata).unwrap()).unwrap()
}

/// Compares every case; the number of cases, or nothing when the vocabulary has not been fetched.
fn compare(name: &str) -> Option<usize> {
    let path = test_data().join(format!("vocabularies/ggml-vocab-{name}.gguf"));
    if !path.is_file() {
        println!("skipped: `{}` is not there (tests/fetch brings it)", path.display());
        return None;
    }
    let tokenizer = tokenizer(&path);
    let read = |suffix| std::fs::read_to_string(format!("{}{suffix}", path.display())).unwrap();
    let (inputs, outputs) = (read(".inp"), read(".out"));
    let inputs = inputs.strip_suffix(SEPARATOR).unwrap_or(&inputs);
    let inputs: Vec<&str> = inputs.split(SEPARATOR).collect();
    let outputs: Vec<&str> = outputs.lines().collect();
    assert_eq!(inputs.len(), outputs.len(), "{name}");
    for (input, output) in inputs.iter().zip(&outputs) {
        let expected: Vec<u32> = output.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let ids = tokenizer.encode(input, false, false).unwrap();
        assert_eq!(ids, expected, "{name}: {input:?}");
        // What was encoded comes back, all at once and token by token.
        assert_eq!(tokenizer.decode(&ids, false), *input, "{name}");
        let mut stream = tokenizer.decode_stream(false);
        let mut text: String = ids.iter().map(|id| stream.push(*id)).collect();
        text.push_str(&stream.finish());
        // A stream keeps the space that encoding put in front.
        assert!(text == *input || text.strip_prefix(' ') == Some(input), "{name}: {input:?} came back as {text:?}");
    }
    println!("{name}: {} cases equal", inputs.len());
    Some(inputs.len())
}

macro_rules! vocabularies {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            assert_ne!(compare($name), Some(0));
        })*
    };
}

vocabularies! {
    llama_spm: "llama-spm",
    llama_bpe: "llama-bpe",
    gpt_2: "gpt-2",
    qwen2: "qwen2",
    phi_3: "phi-3",
    command_r: "command-r",
    deepseek_coder: "deepseek-coder",
    falcon: "falcon",
    mpt: "mpt",
    qwen35: "qwen35",
    refact: "refact",
    starcoder: "starcoder",
}
