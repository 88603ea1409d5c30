//! Every line of the convention list with its exact integers, on models whose sizes are known.

use plancher_floor::{
    Attention, Class, Floor, Format, ModelShape, Regime, Setting, config, expected_share, floor, presets,
};
use serde_json::{Value, json};

fn model(name: &str) -> ModelShape {
    presets::model(name).expect("a preset")
}

fn decode(name: &str, batch: u64, context: u64) -> Floor {
    of(&model(name), Regime::decode(batch, context), Setting::default())
}

fn of(shape: &ModelShape, regime: Regime, setting: Setting) -> Floor {
    floor(shape, &presets::hardware("h100-sxm").expect("a preset"), regime, setting).expect("plausible")
}

fn row(floor: &Floor, class: Class) -> (u128, u128) {
    floor.operations.iter().find(|row| row.class == class).map(|row| (row.bytes, row.flops)).expect("that class")
}

#[test]
fn weights_read_leave_the_embedding_out_and_count_a_tied_one_once() {
    let untied = decode("llama-3.1-8b", 1, 1);
    assert_eq!(untied.params_total, 8_030_261_248);
    assert_eq!(untied.params_read, 8_030_261_248 - 128_256 * 4096);
    assert_eq!(untied.weight_bytes_read(), 15_009_849_344);
    let tied = decode("llama-3.2-1b", 1, 1);
    assert_eq!((tied.params_total, tied.params_read), (1_235_814_400, 1_235_814_400));
    assert_eq!(tied.weight_bytes_read(), 2_471_628_800);
}

#[test]
fn kv_is_read_for_every_token_and_no_more_than_the_window() {
    assert_eq!(decode("llama-3.1-8b", 3, 8192).kv_bytes(), 3 * 8192 * 131_072);
    assert_eq!(decode("mistral-7b", 1, 100_000).kv_bytes(), 4096 * 131_072);
    assert_eq!(decode("deepseek-v3", 1, 1000).kv_bytes(), 1000 * 70_272);
    // Half of gpt-oss's 24 layers see 128 tokens: 8 heads × 64 × 2 × 2 bytes a layer and token.
    assert_eq!(decode("gpt-oss-20b", 1, 1000).kv_bytes(), 12 * 2048 * (128 + 1000));
    // Gemma 3: every sixth of 18 layers is global, one head of 256.
    assert_eq!(decode("gemma-3-270m", 1, 2000).kv_bytes(), 1024 * (15 * 512 + 3 * 2000));
}

#[test]
fn head_dim_comes_from_the_configuration() {
    // Qwen3-0.6B: 16 heads of 128 on a hidden size of 1024.
    let floor = decode("qwen3-0.6b", 1, 1000);
    let (bytes, flops) = row(&floor, Class::Attention);
    assert_eq!((bytes, flops), (28 * 8 * 128 * 2 * 2 * 1000, 4 * 28 * 16 * 128 * 1000));
    assert_eq!(row(&floor, Class::AttentionWeights).0, 2 * 28 * (2 * 2048 * 1024 + 2 * 1024 * 1024));
}

#[test]
fn flop_are_two_per_multiply_add_and_norms_have_none() {
    let floor = decode("llama-3.1-8b", 7, 1024);
    assert_eq!(row(&floor, Class::Mlp).1, 2 * 7 * 32 * 3 * 14336 * 4096);
    assert_eq!(row(&floor, Class::Head).1, 2 * 7 * 128_256 * 4096);
    assert_eq!(row(&floor, Class::Attention).1, 4 * 32 * 32 * 128 * 1024 * 7);
    assert_eq!(row(&floor, Class::Norms), (2 * 65 * 4096, 0));
}

#[test]
fn prefill_averages_half_the_context_and_computes_one_row_of_logits() {
    let regime = |all_logits| Regime::Prefill { batch: 2, prompt: 2048, all_logits };
    let last = of(&model("llama-3.1-8b"), regime(false), Setting::default());
    assert_eq!(row(&last, Class::Attention), (2 * 2048 * 131_072, 2 * 4 * 32 * 32 * 128 * 2048 * 1024));
    assert_eq!(row(&last, Class::Mlp).1, 2 * 4096 * 32 * 3 * 14336 * 4096);
    assert_eq!(row(&last, Class::Head).1, 2 * 2 * 128_256 * 4096);
    let all = of(&model("llama-3.1-8b"), regime(true), Setting::default());
    assert_eq!(row(&all, Class::Head).1, 2 * 4096 * 128_256 * 4096);
}

#[test]
fn the_floor_is_the_sum_over_classes_of_the_longer_limit() {
    let floor = decode("llama-3.1-8b", 512, 1024);
    let sum: f64 = floor.operations.iter().map(|row| row.memory_s.max(row.compute_s)).sum();
    assert_eq!(floor.seconds().to_bits(), sum.to_bits());
    assert!(floor.overlapped_seconds() < floor.seconds());
}

#[test]
fn quantised_weights_carry_their_scales_and_norms_stay() {
    let shape = model("llama-3.1-8b").with_weights(Some("int4:g128".parse().unwrap()), None);
    let floor = of(&shape, Regime::decode(1, 1), Setting::default());
    assert_eq!(floor.weight_bytes_read(), 7_504_658_432 * 33 / 64 + 2 * 266_240);
    let head_kept = model("llama-3.1-8b").with_weights(Some(Format::Fp8), Some(Format::Bf16));
    let floor = of(&head_kept, Regime::decode(1, 1), Setting::default());
    assert_eq!(row(&floor, Class::Head).0, 2 * 128_256 * 4096);
    assert_eq!(row(&floor, Class::Mlp).0, 32 * 3 * 14336 * 4096);
}

#[test]
fn experts_are_read_by_expectation_and_computed_by_choice() {
    let one_expert = 3 * 14336 * 4096_u128;
    let floor = decode("mixtral-8x7b", 1, 1);
    assert_eq!(row(&floor, Class::RoutedExperts), (2 * 32 * 2 * one_expert, 2 * 32 * 2 * one_expert));
    let batch = decode("mixtral-8x7b", 16, 1);
    let share = 1.0 - 0.75f64.powi(16);
    let expected = share * 2.0 * 32.0 * 8.0 * one_expert as f64;
    let (bytes, flops) = row(&batch, Class::RoutedExperts);
    assert!((bytes as f64 / expected - 1.0).abs() < 1e-8);
    assert_eq!(flops, 16 * 2 * 32 * 2 * one_expert);
    assert!((expected_share(plancher_floor::Experts { total: 8, active: 2 }, 16) - share).abs() < 1e-15);
}

#[test]
fn deepseek_has_dense_layers_first_shared_experts_and_the_predictor_apart() {
    let shape = model("deepseek-v3");
    let dense =
        shape.layers.iter().filter(|layer| layer.weights.iter().any(|weight| weight.class == Class::Mlp)).count();
    assert_eq!((dense, shape.layers.len()), (3, 61));
    assert!(shape.predictor.is_some());
    let floor = of(&shape, Regime::decode(1, 1), Setting::default());
    let expert = 3 * 2048 * 7168_u128;
    assert_eq!(row(&floor, Class::SharedExperts).1, 2 * 58 * expert);
    assert_eq!(row(&floor, Class::RoutedExperts).1, 2 * 58 * 8 * expert);
    // fp8 with an f32 scale per 128 × 128.
    assert_eq!(row(&floor, Class::SharedExperts).0, 58 * (expert + 4 * expert / 16384));
    assert_eq!(row(&floor, Class::Mlp).1, 2 * 3 * 3 * 18432 * 7168);
}

#[test]
fn gpt_oss_experts_are_mxfp4_and_the_rest_bf16() {
    let floor = decode("gpt-oss-20b", 1, 1);
    let expert = 3 * 2880 * 2880_u128;
    assert_eq!(row(&floor, Class::RoutedExperts).0, 24 * 4 * expert * 17 / 32);
    assert_eq!(row(&floor, Class::Head).0, 2 * 201_088 * 2880);
}

#[test]
fn tensor_parallel_divides_heads_and_features_and_keeps_norms() {
    let setting = Setting { tensor_parallel: 16, ..Setting::default() };
    let shape = model("llama-3.1-8b");
    let floor = of(&shape, Regime::decode(1, 100), setting);
    // 8 KV heads on 16 devices: each is held twice.
    assert_eq!(floor.kv_bytes(), 100 * 131_072 / 8);
    assert_eq!(row(&floor, Class::Mlp).0, 2 * 32 * 3 * 14336 * 4096 / 16);
    assert_eq!(row(&floor, Class::AttentionWeights).0, 2 * 32 * (2 * 4096 * 4096 / 16 + 2 * 1024 * 4096 / 8));
    assert_eq!(row(&floor, Class::Norms).0, 2 * 65 * 4096);
    // Two all-reduces a layer of one row of 4096 in bf16; a device sends 2 · 15/16 of it.
    let [latency, bandwidth] = &floor.communication[..] else { panic!("two lines") };
    assert_eq!((latency.bytes, bandwidth.bytes), (0, 64 * 2 * 4096 * 2 * 15 / 16));
    assert!((latency.seconds - 64.0 * 2.0 * 0.6e-6).abs() < 1e-12);
    let refused = floor_error(&shape, Regime::decode(1, 1), Setting { tensor_parallel: 3, ..setting });
    assert!(refused.contains("`3` does not divide the 32 query heads"), "{refused}");
}

fn floor_error(shape: &ModelShape, regime: Regime, setting: Setting) -> String {
    floor(shape, &presets::hardware("h100-sxm").unwrap(), regime, setting).unwrap_err().to_string()
}

#[test]
fn impossible_passes_are_refused_by_name() {
    let shape = model("llama-3.2-1b");
    let refused = |regime| floor_error(&shape, regime, Setting::default());
    assert!(refused(Regime::decode(0, 1)).starts_with("`batch`: `0`"));
    assert!(refused(Regime::decode(1, 0)).starts_with("`context`: `0`"));
    assert!(refused(Regime::decode(u64::MAX, 1)).starts_with("`batch`"));
    assert!(refused(Regime::Prefill { batch: 1, prompt: 0, all_logits: false }).starts_with("`prompt`"));
    assert!(refused(Regime::Decode { batch: 1, context: 1, positions: 0 }).starts_with("`positions`"));
}

fn llama_config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 100, "torch_dtype": "bfloat16",
    })
}

fn changed(changes: Value) -> Result<ModelShape, String> {
    let mut config = llama_config();
    let (Some(config_map), Value::Object(changes)) = (config.as_object_mut(), changes) else { panic!("objects") };
    config_map.extend(changes);
    config::from_json("test", &config).map_err(|error| error.to_string())
}

#[test]
fn configurations_that_cannot_be_are_refused_by_field() {
    assert!(changed(json!({})).is_ok());
    let cases = [
        (json!({"architectures": ["MambaForCausalLM"]}), "architecture `MambaForCausalLM` is not understood"),
        (json!({"hidden_size": null}), "`hidden_size`: is missing"),
        (json!({"hidden_size": 0}), "`hidden_size`: `0`"),
        (json!({"hidden_size": -64}), "`hidden_size`: `-64`"),
        (json!({"hidden_size": 1e30}), "`hidden_size`: `1e+30`"),
        (json!({"hidden_size": "64"}), "`hidden_size`: `\"64\"`"),
        (json!({"num_hidden_layers": 100_000}), "`num_hidden_layers`: `100000`"),
        (json!({"num_key_value_heads": 3}), "`num_key_value_heads`: `3` does not divide"),
        (json!({"num_attention_heads": 7, "num_key_value_heads": 7}), "`num_attention_heads`: `7` does not divide"),
        (json!({"torch_dtype": "float8"}), "`torch_dtype`: `float8`"),
        (json!({"tie_word_embeddings": "yes"}), "`tie_word_embeddings`"),
        (json!({"quantization_config": {"quant_method": "aqlm"}}), "`quantization_config.quant_method`: `aqlm`"),
    ];
    for (change, expected) in cases {
        let error = changed(change.clone()).unwrap_err();
        assert!(error.starts_with(expected), "{change}: {error}");
    }
    assert!(config::from_json("x", &json!([])).is_err());
    assert!(config::from_json("x", &json!({})).unwrap_err().to_string().contains("`architectures`"));
}

#[test]
fn a_missing_dtype_is_said_not_assumed_silently() {
    let shape = changed(json!({"torch_dtype": null})).unwrap();
    assert!(shape.notes[0].contains("torch_dtype"));
}

#[test]
fn quantisation_configs_set_the_layers_and_leave_the_head() {
    let quantised = |config: Value| {
        let shape = changed(json!({ "quantization_config": config })).unwrap();
        let format =
            |class| shape.weights().find(|weight| weight.class == class).map(|weight| weight.format.to_string());
        assert_eq!(format(Class::Head).as_deref(), Some("bf16"));
        format(Class::Mlp).unwrap()
    };
    assert_eq!(quantised(json!({"quant_method": "gptq", "bits": 4, "group_size": 128})), "int4:g128");
    assert_eq!(quantised(json!({"quant_method": "awq", "bits": 4, "group_size": 64})), "int4:g64");
    assert_eq!(quantised(json!({"quant_method": "gptq", "bits": 8, "group_size": -1})), "int8");
    assert_eq!(quantised(json!({"quant_method": "fp8"})), "fp8");
    assert_eq!(quantised(json!({"quant_method": "fp8", "weight_block_size": [128, 128]})), "fp8:b128");
    assert_eq!(quantised(json!({"quant_method": "bitsandbytes", "load_in_4bit": true})), "nf4");
    assert_eq!(quantised(json!({"quant_method": "modelopt", "quant_algo": "NVFP4"})), "nvfp4");
    let groups = json!({"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}});
    assert_eq!(quantised(json!({"quant_method": "compressed-tensors", "config_groups": groups})), "int4:g32");
}

#[test]
fn other_architectures_have_the_parameters_of_their_checkpoints() {
    let params = |config: Value| config::from_json("test", &config).unwrap().params_total().unwrap();
    let gpt2 = json!({"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257});
    assert_eq!(params(gpt2), 124_439_808);
    let opt = json!({
        "architectures": ["OPTForCausalLM"], "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "max_position_embeddings": 2048, "word_embed_proj_dim": 768, "vocab_size": 50272,
    });
    assert_eq!(params(opt), 125_239_296);
    let pythia = json!({
        "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6,
        "num_attention_heads": 8, "vocab_size": 50304, "max_position_embeddings": 2048,
    });
    assert_eq!(params(pythia), 70_426_624);
    let gemma2 = json!({
        "architectures": ["Gemma2ForCausalLM"], "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256_000, "sliding_window": 4096,
    });
    assert_eq!(params(gemma2), 2_614_341_888);
    let deepseek_v2_lite = json!({
        "architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
        "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "vocab_size": 102_400, "topk_method": "greedy",
    });
    assert_eq!(params(deepseek_v2_lite), 15_706_484_224);
    let phi3 = json!({
        "architectures": ["Phi3ForCausalLM"], "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "sliding_window": 2047,
    });
    assert_eq!(params(phi3), 3_821_079_552);
}

#[test]
fn qwen3_next_keeps_a_constant_state_in_three_of_four_layers() {
    let config = json!({
        "architectures": ["Qwen3NextForCausalLM"], "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151_936, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "decoder_sparse_step": 1, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "torch_dtype": "bfloat16",
    });
    let shape = config::from_json("qwen3-next-80b-a3b", &config).unwrap();
    let recurrent = shape.layers.iter().filter(|layer| matches!(layer.attention, Attention::Recurrent { .. })).count();
    assert_eq!(recurrent, 36);
    assert_eq!(shape.params_total().unwrap(), 79_674_391_296);
    let state = 36 * 4 * (32 * 128 * 128 + 4 * 8192);
    let kv = |context: u128| 12 * 2 * 256 * 2 * 2 * context + state;
    assert_eq!(shape.kv_bytes(1, Format::Bf16, 1).unwrap(), kv(1));
    assert_eq!(shape.kv_bytes(4096, Format::Bf16, 1).unwrap(), kv(4096));
}

fn config_with(name: &str, changes: &Value) -> Result<ModelShape, plancher_floor::FloorError> {
    let mut fields = json!({
        "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 8, "vocab_size": 262_208, "torch_dtype": "bfloat16", "tie_word_embeddings": true,
    });
    for (field, value) in changes.as_object().expect("an object") {
        fields[field] = value.clone();
    }
    config::from_json(name, &fields)
}

#[test]
fn a_head_size_that_a_configuration_leaves_out_is_the_architectures_own() {
    // The text part of Gemma 3 12B: heads of 256, although 3840 / 16 is 240.
    let gemma = json!({"architectures": ["Gemma3ForCausalLM"], "sliding_window": 1024});
    let gemma = config_with("gemma-3-12b", &gemma).expect("understood");
    assert_eq!(gemma.params_total().expect("countable"), 11_766_034_176);
    assert_eq!(gemma.kv_bytes_per_token(Format::Bf16).expect("countable"), 48 * 2 * 8 * 256 * 2);
    for (architecture, head_dim) in [("Qwen3ForCausalLM", 128), ("GemmaForCausalLM", 256), ("LlamaForCausalLM", 240)] {
        let shape = config_with("a model", &json!({"architectures": [architecture]})).expect("understood");
        assert_eq!(
            shape.kv_bytes_per_token(Format::Bf16).expect("countable"),
            48 * 2 * 8 * head_dim * 2,
            "{architecture}"
        );
    }
}

#[test]
fn windows_of_qwen_begin_where_the_class_says_unless_the_configuration_does() {
    let windowed = |changes: &Value| {
        let mut fields =
            json!({"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true, "sliding_window": 100});
        for (field, value) in changes.as_object().expect("an object") {
            fields[field] = value.clone();
        }
        let shape = config_with("a model", &fields).expect("understood");
        shape.layers.iter().filter(|layer| layer.attention.visible(1000) == 100).count()
    };
    assert_eq!(windowed(&json!({})), 48 - 28);
    assert_eq!(windowed(&json!({"max_window_layers": 3})), 45);
    assert_eq!(windowed(&json!({"use_sliding_window": false})), 0);
}

#[test]
fn experts_in_mxfp4_need_experts() {
    let dense = json!({"architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}});
    let error = config_with("a model", &dense).expect_err("no experts").to_string();
    assert!(error.starts_with("`quantization_config.quant_method`: `mxfp4`"), "{error}");
}

#[test]
fn windows_of_smollm3_are_those_of_the_list() {
    let smollm3 = json!({"architectures": ["SmolLM3ForCausalLM"], "use_sliding_window": true, "sliding_window": 100});
    let error = config_with("a model", &smollm3).expect_err("no list").to_string();
    assert!(error.starts_with("`layer_types`"), "{error}");
    let mut listed = smollm3;
    listed["layer_types"] = json!([["full_attention"; 3].as_slice(), &["sliding_attention"; 45]].concat());
    let shape = config_with("a model", &listed).expect("understood");
    assert_eq!(shape.layers.iter().filter(|layer| layer.attention.visible(1000) == 100).count(), 45);
}
