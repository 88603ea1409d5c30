//! The same model in the several spellings that the hub has for it.

mod common;

use common::{Copy, golden, open, safetensors};
use plancher_model::{GenerationDefaults, Model, ModelConfig, TensorKey};
use serde_json::{Map, Value, json};

fn config_of(copy: &Copy) -> ModelConfig {
    Model::open(copy.path()).unwrap_or_else(|e| panic!("{e}")).config
}

/// A safetensors file of the named tensors of `model.safetensors`, renamed by `name`.
fn part(header: &Map<String, Value>, data: &[u8], names: &[&String], name: impl Fn(&str) -> String) -> Vec<u8> {
    let mut entries = Map::new();
    let mut bytes: Vec<u8> = Vec::new();
    for &old in names {
        let offset = |i: usize| header[old]["data_offsets"][i].as_u64().unwrap() as usize;
        let (begin, range) = (bytes.len(), offset(0)..offset(1));
        bytes.extend(&data[range]);
        let mut entry = header[old].clone();
        entry["data_offsets"] = json!([begin, bytes.len()]);
        entries.insert(name(old), entry);
    }
    safetensors(&Value::Object(entries).to_string(), &bytes)
}

fn names(header: &Map<String, Value>) -> Vec<&String> {
    header.keys().filter(|name| *name != "__metadata__").collect()
}

#[test]
fn shards_are_one_model() {
    let copy = Copy::of("mistral-window");
    let (header, data) = copy.weights();
    let (first, second): (Vec<_>, Vec<_>) = names(&header).into_iter().partition(|name| name.contains(".1."));
    let mut map = Map::new();
    for (file, names) in [("model-00001-of-00002.safetensors", first), ("model-00002-of-00002.safetensors", second)] {
        copy.write(file, part(&header, &data, &names, str::to_owned));
        map.extend(names.iter().map(|&name| (name.clone(), json!(file))));
    }
    copy.remove("model.safetensors");
    copy.write("model.safetensors.index.json", json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string());

    let (sharded, whole) = (Model::open(copy.path()).unwrap(), open("mistral-window"));
    assert_eq!(sharded.config, whole.config);
    assert_eq!(sharded.weights.files().len(), 2);
    for (key, _) in whole.weights.iter() {
        assert_eq!(sharded.weights.get(key).unwrap().bytes, whole.weights.get(key).unwrap().bytes, "{key}");
    }
}

#[test]
fn multimodal_gemma_keeps_the_language_model_in_a_field() {
    let whole = open("gemma3");
    for prefix in ["language_model.model.", "model.language_model."] {
        let copy = Copy::of("gemma3");
        let (header, data) = copy.weights();
        let rename = |name: &str| name.replacen("model.", prefix, 1);
        copy.write("model.safetensors", part(&header, &data, &names(&header), rename));
        copy.config(|object| {
            let mut text = std::mem::take(object);
            text.remove("architectures");
            *object = Map::from_iter([
                ("model_type".to_owned(), json!("gemma3")),
                ("architectures".to_owned(), json!(["Gemma3ForConditionalGeneration"])),
                ("text_config".to_owned(), Value::Object(text)),
                ("vision_config".to_owned(), json!({"hidden_size": 1})),
            ]);
        });
        let model = Model::open(copy.path()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(model.config, whole.config);
        let key = TensorKey::Embedding;
        assert_eq!(model.weights.get(key).unwrap().bytes, whole.weights.get(key).unwrap().bytes);
    }
}

#[test]
fn gemma_before_transformers_5() {
    let copy = Copy::of("gemma3");
    copy.config(|object| {
        for field in ["layer_types", "rope_parameters", "_sliding_window_pattern", "tie_word_embeddings"] {
            object.remove(field);
        }
        object.extend([
            ("rope_theta".to_owned(), json!(1_000_000.0)),
            ("rope_local_base_freq".to_owned(), json!(10_000.0)),
            ("sliding_window_pattern".to_owned(), json!(6)),
        ]);
    });
    assert_eq!(config_of(&copy), open("gemma3").config);

    // Scaling in the old spelling stretches the layers with full attention only.
    copy.set("rope_scaling", json!({"rope_type": "linear", "factor": 8.0}));
    let (scaled, plain) = (config_of(&copy), open("gemma3").config);
    assert_eq!(scaled.ropes[1], plain.ropes[1]);
    assert_eq!(
        scaled.ropes[0].inverse_frequencies,
        plain.ropes[0].inverse_frequencies.iter().map(|f| f / 8.0).collect::<Vec<_>>()
    );
}

#[test]
fn windows_in_every_spelling() {
    let windows = |copy: &Copy| config_of(copy).layers.iter().map(|layer| layer.window).collect::<Vec<_>>();

    let copy = Copy::of("qwen2-window");
    copy.set("layer_types", json!(["sliding_attention", "full_attention", "sliding_attention"]));
    assert_eq!(windows(&copy), [Some(16), None, Some(16)], "a list of kinds comes before `max_window_layers`");
    copy.set("use_sliding_window", json!(false));
    assert_eq!(windows(&copy), [None; 3]);

    let copy = Copy::of("mistral-window");
    copy.set("sliding_window", Value::Null);
    assert_eq!(windows(&copy), [None; 3]);
    copy.config(|object| drop(object.remove("sliding_window")));
    assert_eq!(windows(&copy), [Some(4096); 3], "transformers' default for an absent field");
}

#[test]
fn layers_without_rotary_embedding_by_list() {
    let copy = Copy::of("smollm3-nope");
    copy.set("no_rope_layers", json!([0, 1, 1, 0]));
    let ropes: Vec<_> = config_of(&copy).layers.iter().map(|layer| layer.rope).collect();
    assert_eq!(ropes, [None, Some(0), Some(0), None], "1 says that a layer has it");
}

#[test]
fn a_head_that_is_stored_is_used_though_the_configuration_says_tied() {
    let copy = Copy::of("mistral-window");
    copy.set("tie_word_embeddings", json!(true));
    let model = Model::open(copy.path()).unwrap();
    assert!(!model.config.tied_embeddings);
    assert_eq!(model.weights.get(TensorKey::Head).unwrap().tensor.name, "lm_head.weight");
}

#[test]
fn fp8_factors_in_the_other_spellings() {
    let scale = |copy: &Copy| {
        let model = Model::open(copy.path()).unwrap_or_else(|e| panic!("{e}"));
        let key = TensorKey::Layer(0, plancher_model::LayerTensor::Query);
        model.weights.get(key).unwrap().tensor.scale.clone()
    };
    let copy = Copy::of("fp8-channel");
    let expected = scale(&copy);
    copy.config(|object| drop(object.remove("quantization_config")));
    assert_eq!(scale(&copy), expected, "factors count without a configuration");

    let expected = scale(&Copy::of("fp8-block"));
    let copy = Copy::of("fp8-block");
    copy.header(|header| {
        for name in names(header).into_iter().cloned().collect::<Vec<_>>() {
            if let Some(stem) = name.strip_suffix("_inv") {
                let entry = header.remove(&name).unwrap();
                header.insert(stem.to_owned(), entry);
            }
        }
    });
    let weights = json!({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]});
    let groups = json!({"group_0": {"weights": weights, "targets": ["Linear"]}});
    copy.set("quantization_config", json!({"quant_method": "compressed-tensors", "config_groups": groups}));
    assert_eq!(scale(&copy), expected);
}

#[test]
fn generation_defaults() {
    let copy = Copy::of("llama-gqa-tied");
    copy.set("eos_token_id", json!(2));
    let defaults = |copy: &Copy| Model::open(copy.path()).unwrap().generation;
    let bare = GenerationDefaults { end_tokens: vec![2], begin_token: Some(1), ..GenerationDefaults::default() };
    assert_eq!(defaults(&copy), bare);

    copy.write(
        "generation_config.json",
        r#"{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null, "eos_token_id": [5, 2, 7],
            "repetition_penalty": 1.1, "transformers_version": "4.51.0"}"#,
    );
    let sampling = GenerationDefaults {
        end_tokens: vec![5, 2, 7],
        begin_token: Some(1),
        temperature: Some(0.6),
        top_k: Some(20),
        top_p: Some(0.95),
        min_p: None,
        repetition_penalty: Some(1.1),
    };
    assert_eq!(defaults(&copy), sampling);

    copy.write("generation_config.json", r#"{"do_sample": false, "temperature": 0.6, "top_k": 0}"#);
    assert_eq!(defaults(&copy), GenerationDefaults { temperature: Some(0.0), ..bare });
}

#[test]
fn the_golden_directories_say_nothing_about_sampling() {
    let model = Model::open(&golden("qwen2-bias")).unwrap();
    assert_eq!(model.generation, GenerationDefaults { begin_token: Some(1), ..GenerationDefaults::default() });
}
