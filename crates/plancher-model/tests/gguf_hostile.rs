//! GGUF files that are cut off, contradict themselves or lie about sizes: every one is refused in one line that
//! names file, field and value; nothing panics, whatever the bytes.

use std::fmt::Write as _;

use plancher_model::testing::{GgufWriter, Random, check_gguf, encode_row};
use plancher_model::{DType, Model};

/// A llama of one layer, 32 wide, with a vocabulary of four tokens.
fn tiny() -> GgufWriter {
    let mut writer = GgufWriter::new("llama");
    for (key, value) in [
        ("llama.block_count", 1),
        ("llama.context_length", 64),
        ("llama.embedding_length", 32),
        ("llama.feed_forward_length", 64),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
    ] {
        writer.unsigned(key, value);
    }
    writer.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
    writer.text("tokenizer.ggml.model", "llama");
    writer.texts("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "a"]);
    writer.floats("tokenizer.ggml.scores", &[0.0; 4]);
    writer.integers("tokenizer.ggml.token_type", &[2, 3, 3, 1]);
    writer.unsigned("tokenizer.ggml.eos_token_id", 2);
    for (name, rows, columns) in [
        ("token_embd", 4, 32),
        ("output_norm", 1, 32),
        ("blk.0.attn_norm", 1, 32),
        ("blk.0.attn_q", 32, 32),
        ("blk.0.attn_k", 16, 32),
        ("blk.0.attn_v", 16, 32),
        ("blk.0.attn_output", 32, 32),
        ("blk.0.ffn_norm", 1, 32),
        ("blk.0.ffn_gate", 64, 32),
        ("blk.0.ffn_up", 64, 32),
        ("blk.0.ffn_down", 32, 64),
    ] {
        let dimensions = if rows == 1 { vec![columns] } else { vec![columns, rows] };
        let bytes = encode_row(DType::F32, &vec![0.5; rows * columns]);
        writer.tensor(&format!("{name}.weight"), &dimensions, DType::F32, bytes);
    }
    writer
}

/// Opens files with the given contents, the first one as the model. Paths in messages lose their directory.
fn open(files: &[(&str, Vec<u8>)]) -> Result<Model, String> {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    Model::open(&directory.path().join(files[0].0)).map_err(|error| {
        let message = error.to_string();
        assert!(!message.contains('\n'), "{message}");
        message.replace(&format!("{}/", directory.path().display()), "")
    })
}

fn refusal(bytes: Vec<u8>) -> String {
    open(&[("m.gguf", bytes)]).expect_err("a file that must be refused")
}

/// What is done to the tiny model, in words and in code.
type Change = (&'static str, fn(&mut GgufWriter));

/// The refusals of variations of the tiny model, one a line.
fn refusals(changes: &[Change]) -> String {
    let mut lines = String::new();
    for (what, change) in changes {
        let mut writer = tiny();
        change(&mut writer);
        writeln!(lines, "{what}: {}", refusal(writer.finish())).unwrap();
    }
    lines
}

#[test]
fn the_tiny_model_opens_whatever_the_alignment_and_version() {
    let model = open(&[("m.gguf", tiny().finish())]).unwrap();
    assert_eq!(model.generation.end_tokens, [2]);
    assert!(model.config.tied_embeddings);
    let mut writer = tiny();
    (writer.version, writer.alignment) = (2, 64);
    writer.unsigned("general.alignment", 64);
    assert_eq!(open(&[("m.gguf", writer.finish())]).unwrap().config, model.config);
}

#[test]
fn containers() {
    let mut lines = String::new();
    let file = tiny().finish();
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("magic", patched(0, b"ggjt")),
        ("control characters", patched(0, b"\n\x1b[m")),
        ("two bytes", b"GG".to_vec()),
        ("version 1", patched(4, &1u32.to_le_bytes())),
        ("version 9", patched(4, &9u32.to_le_bytes())),
        ("big endian", patched(4, &3u32.to_be_bytes())),
        ("tensor count", patched(8, &u64::MAX.to_le_bytes())),
        ("key count", patched(16, &(1u64 << 40).to_le_bytes())),
        ("key length", patched(24, &(u64::MAX - 4).to_le_bytes())),
        ("key not UTF-8", patched(32, &[0xff])),
        ("value type", patched(32 + "general.architecture".len(), &77u32.to_le_bytes())),
        ("cut in the header", file[..700].to_vec()),
        ("cut in the data", file[..file.len() - 4].to_vec()),
    ] {
        writeln!(lines, "{what}: {}", refusal(bytes)).unwrap();
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn metadata() {
    insta::assert_snapshot!(refusals(&[
        ("key twice", |w| w.unsigned("llama.block_count", 1)),
        ("alignment", |w| w.unsigned("general.alignment", 24)),
        ("array count", |w| {
            w.raw("x", 9, &[&4u32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat());
        }),
        ("arrays in arrays", |w| {
            let level = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
            w.raw("x", 9, &level.repeat(1000));
        }),
        ("bool", |w| w.raw("llama.attention.causal", 7, &[3])),
        ("not causal", |w| w.flag("llama.attention.causal", false)),
        ("experts", |w| w.unsigned("llama.expert_count", 8)),
        ("window type", |w| w.text("llama.attention.sliding_window", "wide\nand long")),
        ("key length", |w| w.unsigned("llama.attention.key_length", 0)),
        ("value length", |w| w.unsigned("llama.attention.value_length", 16)),
        ("rotary dimensions", |w| w.unsigned("llama.rope.dimension_count", 9)),
        ("odd rotary dimensions", |w| w.unsigned("llama.rope.dimension_count", 7)),
        ("base", |w| w.float("llama.rope.freq_base", f32::NAN)),
        ("negative base", |w| w.float("llama.rope.freq_base", -1.0)),
        ("scaling type", |w| w.text("llama.rope.scaling.type", "longrope")),
        ("scaling factor", |w| w.float("llama.rope.scaling.factor", -2.0)),
        ("end token", |w| w.raw("tokenizer.ggml.eot_token_id", 10, &u64::MAX.to_le_bytes())),
        ("sampling", |w| w.float("general.sampling.top_p", 2.0)),
    ]));
}

#[test]
fn sizes_that_disagree() {
    let with = |key: &str, value: usize| {
        let mut writer = GgufWriter::new("llama");
        for (name, default) in [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", 32),
            ("feed_forward_length", 64),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
        ] {
            if name == key && value == usize::MAX {
                continue;
            }
            writer.unsigned(&format!("llama.{name}"), if name == key { value } else { default });
        }
        writer.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
        writer.tensor("token_embd.weight", &[32, 4], DType::F32, encode_row(DType::F32, &[0.5; 128]));
        writer.tensor("output_norm.weight", &[32], DType::F32, encode_row(DType::F32, &[0.5; 32]));
        refusal(writer.finish())
    };
    let mut lines = String::new();
    for (key, value) in [
        ("block_count", usize::MAX),
        ("block_count", 0),
        ("block_count", 1 << 30),
        ("embedding_length", 64),
        ("attention.head_count", 3),
        ("attention.head_count_kv", 3),
        ("feed_forward_length", usize::MAX),
        ("context_length", 0),
    ] {
        writeln!(lines, "{key}: {}", with(key, value)).unwrap();
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn tensors() {
    insta::assert_snapshot!(refusals(&[
        ("missing", |w| w.remove_tensor("blk.0.attn_k.weight")),
        ("twice", |w| w.tensor("output_norm.weight", &[32], DType::F32, vec![0; 128])),
        ("without a role", |w| w.tensor("blk.0.ffn_gate_inp.weight", &[32], DType::F32, vec![0; 128])),
        ("shape", |w| {
            w.remove_tensor("blk.0.ffn_down.weight");
            w.tensor("blk.0.ffn_down.weight", &[64, 31], DType::F32, vec![0; 64 * 31 * 4]);
        }),
        ("no dimensions", |w| w.raw_tensor("x", vec![], 0, vec![], None)),
        ("five dimensions", |w| w.raw_tensor("x", vec![1; 5], 0, vec![0; 4], None)),
        ("a dimension of zero", |w| w.raw_tensor("x", vec![32, 0], 0, vec![], None)),
        ("dimensions overflow", |w| w.raw_tensor("x", vec![1 << 33, 1 << 33], 0, vec![], None)),
        ("past the end", |w| w.raw_tensor("x", vec![1 << 20], 0, vec![0; 4], None)),
        ("offset", |w| w.raw_tensor("x", vec![1], 0, vec![0; 4], Some(u64::MAX - 31))),
        ("not aligned", |w| w.raw_tensor("x", vec![1], 0, vec![0; 4], Some(4))),
        ("overlapping", |w| w.raw_tensor("x", vec![1], 0, vec![0; 4], Some(96))),
        ("not whole blocks", |w| w.raw_tensor("x", vec![33], 8, vec![0; 68], None)),
        ("name", |w| w.raw_tensor("x\ny", vec![1], 0, vec![0; 4], None)),
        ("IQ4_XS", |w| {
            w.remove_tensor("blk.0.attn_q.weight");
            w.raw_tensor("blk.0.attn_q.weight", vec![32, 32], 23, vec![0; 64], None);
        }),
        ("unknown type", |w| {
            w.remove_tensor("blk.0.attn_q.weight");
            w.raw_tensor("blk.0.attn_q.weight", vec![32, 32], 99, vec![0; 64], None);
        }),
        ("longrope", |w| w.tensor("rope_factors_long.weight", &[4], DType::F32, vec![0; 16])),
        ("rope factors", |w| w.tensor("rope_freqs.weight", &[4], DType::F32, vec![0; 16])),
    ]));
}

#[test]
fn architectures() {
    insta::assert_snapshot!(refusal(GgufWriter::new("mamba").finish()), @"`m.gguf`: architecture `mamba` is not supported (supported: llama, mistral, qwen2, qwen3, gemma3, smollm3, phi3)");
    insta::assert_snapshot!(refusal(GgufWriter::default().finish()), @"`m.gguf`: `general.architecture`: is missing");
}

/// The tiny model in two files: metadata and half of the tensors, the other half.
fn split(no: [usize; 2], count: usize, tensors: usize) -> Vec<(&'static str, Vec<u8>)> {
    let names = ["blk.0.attn_q.weight", "blk.0.ffn_down.weight"];
    let mut first = tiny();
    let mut second = GgufWriter::default();
    for (writer, no) in [(&mut first, no[0]), (&mut second, no[1])] {
        writer.unsigned("split.no", no);
        writer.unsigned("split.count", count);
        writer.unsigned("split.tensors.count", tensors);
    }
    for (name, dimensions) in names.into_iter().zip([[32, 32], [64, 32]]) {
        first.remove_tensor(name);
        let bytes = encode_row(DType::F32, &vec![0.25; dimensions[0] * dimensions[1]]);
        second.tensor(name, &dimensions, DType::F32, bytes);
    }
    vec![("m-00001-of-00002.gguf", first.finish()), ("m-00002-of-00002.gguf", second.finish())]
}

#[test]
fn split_files_open_as_one() {
    use plancher_model::{LayerTensor, TensorKey};
    let model = open(&split([0, 1], 2, 11)).unwrap();
    let view = model.weights.get(TensorKey::Layer(0, LayerTensor::Down)).unwrap();
    assert_eq!((view.tensor.file, view.rows(), view.columns()), (1, 32, 64));
    let mut row = vec![0.0; 64];
    view.dequantize_row(31, &mut row);
    assert!(row.iter().all(|value| value.to_bits() == 0.25f32.to_bits()));
}

#[test]
fn split_files_that_do_not_belong_together() {
    let mut lines = String::new();
    let mut show = |what: &str, files: &[(&str, Vec<u8>)]| {
        writeln!(lines, "{what}: {}", open(files).expect_err("a file that must be refused")).unwrap();
    };
    let good = split([0, 1], 2, 11);
    show("part missing", &good[..1]);
    show("second part opened", &[good[1].clone(), good[0].clone()]);
    show("renamed", &[("m.gguf", good[0].1.clone())]);
    show("same part twice", &[good[0].clone(), (good[1].0, good[0].1.clone())]);
    show("numbers", &split([0, 2], 2, 11));
    show("tensors", &split([0, 1], 2, 12));
    show("count", &split([0, 1], 70_000, 11));
    insta::assert_snapshot!(lines);
}

#[test]
fn mutated_files_never_panic() {
    let seed = tiny().finish();
    // Nearly all of the header, a bit of the data.
    let header = 1500;
    let mut random = Random::new(2026);
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(header.min(bytes.len()));
            match random.below(4) {
                0 => bytes[at] = random.bits() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let end = (at + 8).min(bytes.len());
                    let extreme = [u64::MAX, 1 << 63, 1 << 32, 0, 1][random.below(5)];
                    bytes[at..end].copy_from_slice(&extreme.to_le_bytes()[..end - at]);
                }
            }
        }
        check_gguf(&bytes);
    }
}

/// The same with the step from a file to a model.
#[test]
fn mutated_files_open_or_are_refused_in_one_line() {
    let seed = tiny().finish();
    let mut random = Random::new(7);
    let mut opened = 0;
    for _ in 0..500 {
        let mut bytes = seed.clone();
        let at = random.below(1500);
        bytes[at] = random.bits() as u8;
        opened += usize::from(open(&[("m.gguf", bytes)]).is_ok());
    }
    assert!((1..500).contains(&opened), "{opened}");
}
