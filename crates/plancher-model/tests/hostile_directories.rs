//! Model directories that are wrong or hostile are refused with one line that names file, field and value.

mod common;

use std::fmt::Write as _;

use common::{Copy, safetensors};
use plancher_model::Model;
use serde_json::{Value, json};

/// A name for the case, and what is done to a copy of a golden checkpoint.
type Case = (&'static str, fn(&Copy));

/// Applies each case to a fresh copy of `golden` and lists the messages.
fn refusals(golden: &str, cases: &[Case]) -> String {
    let mut lines = String::new();
    for (name, change) in cases {
        let copy = Copy::of(golden);
        change(&copy);
        let line = copy.refusal();
        assert!(!line.contains('\n'), "{name}: {line}");
        writeln!(lines, "{name}: {line}").unwrap();
    }
    lines
}

#[test]
fn configurations() {
    let cases: &[Case] = &[
        ("no config", |c| c.remove("config.json")),
        ("empty config", |c| c.write("config.json", "")),
        ("not an object", |c| c.write("config.json", "[1, 2]")),
        ("deep JSON", |c| c.write("config.json", format!("{{\"a\":{}", "[".repeat(100_000)))),
        ("huge config", |c| c.write("config.json", vec![b' '; (4 << 20) + 1])),
        ("no architecture", |c| c.config(|o| drop((o.remove("model_type"), o.remove("architectures"))))),
        ("unknown architecture", |c| c.set("model_type", json!("mamba"))),
        ("control characters", |c| c.set("model_type", json!("a\nb\u{1b}[31m"))),
        ("classifier", |c| c.set("architectures", json!(["LlamaForSequenceClassification"]))),
        ("zero layers", |c| c.set("num_hidden_layers", json!(0))),
        ("absurd layers", |c| c.set("num_hidden_layers", json!(u64::MAX))),
        ("negative width", |c| c.set("hidden_size", json!(-64))),
        ("width is text", |c| c.set("hidden_size", json!("64"))),
        ("no width", |c| c.config(|o| drop(o.remove("hidden_size")))),
        ("heads do not divide", |c| c.set("num_key_value_heads", json!(3))),
        ("odd head_dim", |c| c.set("head_dim", json!(15))),
        ("zero epsilon", |c| c.set("rms_norm_eps", json!(0.0))),
        ("activation", |c| c.set("hidden_act", json!("relu"))),
        ("rope type", |c| c.set("rope_scaling", json!({"rope_type": "dynamic", "factor": 2.0}))),
        ("rope factor", |c| c.set("rope_scaling", json!({"type": "linear", "factor": 0}))),
        ("no rope factor", |c| c.set("rope_scaling", json!({"type": "linear"}))),
        ("rope base", |c| c.set("rope_parameters", json!({"rope_theta": 0.5}))),
        ("yarn attention factor", |c| {
            c.set("rope_parameters", json!({"rope_type": "yarn", "factor": 2.0, "attention_factor": -1.0}));
        }),
        ("partial rotary", |c| c.set("partial_rotary_factor", json!(0.5))),
        ("more layers than stored", |c| c.set("num_hidden_layers", json!(4))),
        ("biases that are not stored", |c| c.set("attention_bias", json!(true))),
        ("other width", |c| c.set("intermediate_size", json!(161))),
        ("untied without head", |c| c.set("tie_word_embeddings", json!(false))),
        ("quantisation method", |c| c.set("quantization_config", json!({"quant_method": "awq", "bits": 4}))),
        ("4-bit compressed tensors", |c| {
            let weights = json!({"num_bits": 4, "type": "int", "symmetric": true});
            let groups = json!({"group_0": {"weights": weights}});
            c.set("quantization_config", json!({"quant_method": "compressed-tensors", "config_groups": groups}));
        }),
        ("fp8 of another kind", |c| c.set("quantization_config", json!({"quant_method": "fp8", "fmt": "e5m2"}))),
        ("end token", |c| c.set("eos_token_id", json!([1, -2]))),
        ("temperature", |c| c.write("generation_config.json", r#"{"temperature": -1}"#)),
        ("top_p", |c| c.write("generation_config.json", r#"{"top_p": 1.5}"#)),
        ("broken generation config", |c| c.write("generation_config.json", r#"{"top_p": "#)),
    ];
    insta::assert_snapshot!(refusals("llama-gqa-tied", cases));
}

#[test]
fn other_architectures() {
    let gemma: &[Case] = &[
        ("soft cap", |c| c.set("final_logit_softcapping", json!(30.0))),
        ("bidirectional", |c| c.set("use_bidirectional_attention", json!(true))),
        ("short pattern", |c| c.set("layer_types", json!(["full_attention"]))),
        ("unknown kind", |c| c.set("layer_types", json!(vec!["chunked_attention"; 7]))),
        ("zero window", |c| c.set("sliding_window", json!(0))),
    ];
    let phi3: &[Case] = &[("longrope", |c| c.set("rope_scaling", json!({"type": "longrope", "short_factor": []})))];
    let smollm3: &[Case] = &[
        ("short list", |c| c.set("no_rope_layers", json!([1]))),
        ("not 0 or 1", |c| c.set("no_rope_layers", json!([1, 1, 1, 2]))),
    ];
    let fp8: &[Case] = &[
        ("no factor", |c| c.header(|h| rename(h, "model.layers.0.mlp.up_proj.weight_scale_inv", "other"))),
        ("other blocks", |c| {
            c.set("quantization_config", json!({"quant_method": "fp8", "weight_block_size": [64, 64]}));
        }),
        ("blocks of unknown size", |c| c.config(|o| drop(o.remove("quantization_config")))),
        ("zero block", |c| {
            c.set("quantization_config", json!({"quant_method": "fp8", "weight_block_size": [0, 128]}));
        }),
        ("factor is infinite", |c| {
            let (header, mut data) = c.weights();
            let begin = header["model.layers.0.mlp.up_proj.weight_scale_inv"]["data_offsets"][0].as_u64().unwrap();
            data[begin as usize..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
            c.write("model.safetensors", safetensors(&Value::Object(header).to_string(), &data));
        }),
    ];
    let lines = [refusals("gemma3", gemma), refusals("phi3-partial", phi3), refusals("smollm3-nope", smollm3)];
    insta::assert_snapshot!(lines.concat() + &refusals("fp8-block", fp8));
}

fn rename(header: &mut serde_json::Map<String, Value>, old: &str, new: &str) {
    let value = header.remove(old).unwrap();
    header.insert(new.to_owned(), value);
}

#[test]
fn weight_files() {
    const NORM: &str = "model.norm.weight";
    let cases: &[Case] = &[
        ("no weights", |c| c.remove("model.safetensors")),
        ("pickle only", |c| {
            c.remove("model.safetensors");
            c.write("pytorch_model.bin", "\u{80}\u{2}");
        }),
        ("empty", |c| c.write("model.safetensors", "")),
        ("seven bytes", |c| c.write("model.safetensors", [0; 7])),
        ("absurd header length", |c| c.write("model.safetensors", [0xff; 64])),
        ("header past the end", |c| c.write("model.safetensors", [&[200, 0, 0, 0, 0, 0, 0, 0][..], b"{}"].concat())),
        ("not JSON", |c| c.write("model.safetensors", safetensors("{]", b""))),
        ("deep JSON", |c| c.write("model.safetensors", safetensors(&"{\"a\":".repeat(100_000), b""))),
        ("deep metadata", |c| {
            c.write("model.safetensors", safetensors(&format!("{{\"__metadata__\":{}", "[".repeat(100_000)), b""));
        }),
        ("trailing text", |c| c.write("model.safetensors", safetensors("{} {}", b""))),
        ("no tensors", |c| c.write("model.safetensors", safetensors("{}", b""))),
        ("truncated data", |c| {
            let (header, data) = c.weights();
            let header = Value::Object(header).to_string();
            c.write("model.safetensors", safetensors(&header, &data[..data.len() - 1]));
        }),
        ("data follows", |c| {
            let (header, data) = c.weights();
            let header = Value::Object(header).to_string();
            c.write("model.safetensors", safetensors(&header, &[&data[..], b"xx"].concat()));
        }),
        ("twice", |c| {
            let entry = r#""a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
            c.write("model.safetensors", safetensors(&format!("{{{entry},{entry}}}"), b"x"));
        }),
        ("overlap", |c| c.header(|h| h[NORM]["data_offsets"] = json!([0, 128]))),
        ("gap", |c| c.header(|h| drop(h.remove("model.layers.1.input_layernorm.weight")))),
        ("backwards", |c| c.header(|h| h[NORM]["data_offsets"] = json!([128, 0]))),
        ("offsets that overflow", |c| c.header(|h| h[NORM]["data_offsets"] = json!([u64::MAX - 1, u64::MAX]))),
        ("negative offset", |c| c.header(|h| h[NORM]["data_offsets"] = json!([-128, 0]))),
        ("shape that overflows", |c| c.header(|h| h[NORM]["shape"] = json!([u64::MAX, u64::MAX]))),
        ("shape and bytes", |c| c.header(|h| h[NORM]["shape"] = json!([65]))),
        ("many dimensions", |c| c.header(|h| h[NORM]["shape"] = json!(vec![1; 1000]))),
        ("integers", |c| c.header(|h| h[NORM]["dtype"] = json!("I16"))),
        ("unknown type", |c| c.header(|h| h[NORM]["dtype"] = json!("Q3\n"))),
        ("transposed", |c| c.header(|h| h["model.layers.0.mlp.down_proj.weight"]["shape"] = json!([160, 64]))),
        ("renamed", |c| c.header(|h| rename(h, NORM, "model.n\torm"))),
    ];
    insta::assert_snapshot!(refusals("llama-gqa-tied", cases));
}

#[test]
fn indexes() {
    fn index(copy: &Copy, file: &Value) {
        std::fs::rename(copy.path().join("model.safetensors"), copy.path().join("a.safetensors")).unwrap();
        let map = json!({"weight_map": {"model.norm.weight": file}});
        copy.write("model.safetensors.index.json", map.to_string());
    }
    let cases: &[Case] = &[
        ("absolute", |c| index(c, &json!("/etc/passwd"))),
        ("parent", |c| index(c, &json!("../a.safetensors"))),
        ("just the parent", |c| index(c, &json!(".."))),
        ("below", |c| index(c, &json!("sub/a.safetensors"))),
        ("in a roundabout way", |c| index(c, &json!("./a.safetensors"))),
        ("backslash", |c| index(c, &json!("..\\a.safetensors"))),
        ("empty name", |c| index(c, &json!(""))),
        ("number", |c| index(c, &json!(7))),
        ("absent shard", |c| index(c, &json!("b.safetensors"))),
        ("shard is a directory", |c| {
            std::fs::create_dir(c.path().join("d")).unwrap();
            index(c, &json!("d"));
        }),
        ("tensor elsewhere", |c| {
            c.write("b.safetensors", safetensors("{}", b""));
            index(c, &json!("b.safetensors"));
        }),
        ("empty map", |c| {
            c.remove("model.safetensors");
            c.write("model.safetensors.index.json", r#"{"weight_map": {}}"#);
        }),
        ("mapped twice", |c| {
            c.remove("model.safetensors");
            c.write("model.safetensors.index.json", r#"{"weight_map": {"a": "x", "a": "y"}}"#);
        }),
        ("no map", |c| {
            c.remove("model.safetensors");
            c.write("model.safetensors.index.json", "{}");
        }),
        ("in two shards", |c| {
            std::fs::copy(c.path().join("model.safetensors"), c.path().join("b.safetensors")).unwrap();
            std::fs::rename(c.path().join("model.safetensors"), c.path().join("a.safetensors")).unwrap();
            c.write("model.safetensors.index.json", r#"{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}"#);
        }),
    ];
    insta::assert_snapshot!(refusals("llama-gqa-tied", cases));
}

#[cfg(unix)]
#[test]
fn a_pipe_or_a_dangling_link_does_not_hang() {
    let copy = Copy::of("llama-gqa-tied");
    copy.remove("model.safetensors");
    std::os::unix::fs::symlink("nowhere", copy.path().join("model.safetensors")).unwrap();
    assert!(copy.refusal().starts_with("cannot read `DIR/model.safetensors`: No such file"));
    copy.remove("model.safetensors");
    for file in ["model.safetensors", "config.json"] {
        let path = copy.path().join(file);
        let _ = std::fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(copy.refusal(), format!("`DIR/{file}`: `file`: is not a regular file"));
    }
    assert!(Model::open(&copy.path().join("absent")).unwrap_err().to_string().contains("absent"));
}

#[test]
fn a_directory_of_gguf_files_is_one_model_or_a_list() {
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str| std::fs::write(directory.path().join(name), "no model").unwrap();
    let message = || Model::open(directory.path()).unwrap_err().to_string();
    put("README.md");
    assert!(message().contains("config.json"), "{}", message());
    // The first part is opened; later parts and an image projector are not models of their own.
    for name in ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-m.gguf"] {
        put(name);
    }
    assert!(message().contains("/m-00001-of-00002.gguf`: "), "{}", message());
    put("m-Q4_0.GGUF");
    let list = "2 GGUF files: `m-00001-of-00002.gguf`, `m-Q4_0.GGUF`; name one of them";
    assert!(message().ends_with(list), "{}", message());
    // What `config.json` describes comes first.
    put("config.json");
    assert!(message().contains("config.json"), "{}", message());
}
