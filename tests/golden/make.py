"""Makes the golden checkpoints that Hugging Face transformers is asked for: tiny random models and its answers.

    python3 -m venv venv && venv/bin/pip install torch transformers==5.24.0 safetensors
    venv/bin/python make.py [NAME ...]

Each directory holds `config.json`, `model.safetensors` (bf16, or fp8 with factors) and `golden.safetensors`:
`prompt.N` int64 (T), `logits.N` float32 (T, vocab), `greedy.N` int64 (32) and `gap.N` float32 (32), the distance
between the two best logits at each greedy step, for T = 1, 7 and 45, computed in float32 on the stored weights.
`rope.safetensors` holds the rotary tables: `inv_freq` and `attention_factor`, or one pair for each layer type.
The checkpoints in KEPT came from elsewhere in the same form; only their rotary tables are made here.
"""

import json
import sys
import zlib
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers import LlamaConfig, Phi3Config, Qwen2Config, SmolLM3Config

HERE = Path(__file__).parent
KEPT = ["gemma3", "llama-gqa-tied", "llama-rope-llama3", "mistral-window", "qwen2-bias", "qwen3-qknorm"]
SIZES = dict(vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=1, eos_token_id=None, pad_token_id=0,
             tie_word_embeddings=True)
WIDE = dict(SIZES, hidden_size=192, intermediate_size=320, num_hidden_layers=2, num_attention_heads=6)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)


def old_spelling(config):
    """`rope_theta` and `rope_scaling`, as before transformers 5."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope


def old_type_spelling(config):
    """Older still: `type` for `rope_type`."""
    old_spelling(config)
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")


def without(*names):
    def change(config):
        for name in names:
            del config[name]

    return change


# name: (configuration, change of the written config.json)
CASES = {
    "llama-rope-linear": (LlamaConfig(
        **SIZES, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), old_type_spelling),
    "llama-rope-yarn": (LlamaConfig(**SIZES, head_dim=32, rope_parameters=YARN), old_spelling),
    "llama-rope-yarn-mscale": (LlamaConfig(**SIZES, head_dim=32, rope_parameters=dict(
        YARN, mscale=1.2, mscale_all_dim=0.7, truncate=False, beta_fast=8.0, beta_slow=0.5)), None),
    "llama-bias": (LlamaConfig(**dict(SIZES, tie_word_embeddings=False), attention_bias=True, mlp_bias=True), None),
    "qwen2-window": (Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=16, max_window_layers=1),
                     without("layer_types")),
    "smollm3-nope": (SmolLM3Config(**dict(SIZES, num_hidden_layers=4), no_rope_layer_interval=2),
                     without("no_rope_layers", "layer_types")),
    "phi3-partial": (Phi3Config(**dict(SIZES, tie_word_embeddings=False), sliding_window=24, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), None),
    "fp8-tensor": (LlamaConfig(**SIZES), None),
    "fp8-channel": (LlamaConfig(**SIZES), None),
    "fp8-block": (LlamaConfig(**WIDE), None),
}
FP8 = {
    "fp8-tensor": dict(quant_method="fp8", activation_scheme="static"),
    "fp8-channel": dict(quant_method="compressed-tensors", format="float-quantized", ignore=["lm_head"], config_groups=dict(
        group_0=dict(targets=["Linear"], input_activations=dict(num_bits=8, type="float", dynamic=True, strategy="token"),
                     weights=dict(num_bits=8, type="float", strategy="channel", symmetric=True, dynamic=False)))),
    "fp8-block": dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128]),
}


def weight(name, shape, generator):
    """Random weights that give logits of a few units: matrices scaled by their inputs, norms around 1."""
    noise = torch.randn(shape, generator=generator)
    if "norm" in name:
        return 1 + 0.2 * noise
    if name.endswith("bias"):
        return 0.2 * noise
    if "embed" in name:
        return 0.6 * noise
    return 1.6 * noise / shape[-1] ** 0.5


def quantize(case, name, matrix):
    """A matrix as fp8: the tensors to store and the float32 matrix that they mean."""
    rows, columns = matrix.shape
    if case == "fp8-tensor":
        blocks = (rows, columns)
    else:
        blocks = (1, columns) if case == "fp8-channel" else (128, 128)
    shape = (-(-rows // blocks[0]), -(-columns // blocks[1]))
    scale = torch.zeros(shape)
    for i in range(shape[0]):
        for j in range(shape[1]):
            block = matrix[i * blocks[0]:(i + 1) * blocks[0], j * blocks[1]:(j + 1) * blocks[1]]
            scale[i, j] = block.abs().max() / 448
    if case == "fp8-channel":
        scale = scale.bfloat16()
    whole = scale.float().repeat_interleave(blocks[0], 0)[:rows].repeat_interleave(blocks[1], 1)[:, :columns]
    stored = (matrix / whole).clamp(-448, 448).to(torch.float8_e4m3fn)
    tensors = {name: stored}
    if case == "fp8-tensor":
        tensors[name + "_scale"] = scale.reshape(())
        tensors[name.replace("weight", "input_scale")] = torch.tensor(0.03)
    else:
        tensors[name + ("_scale" if case == "fp8-channel" else "_scale_inv")] = scale
    return tensors, stored.float() * whole


def make(name):
    config, change = CASES[name]
    directory = HERE / name
    directory.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    stored = {}
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            values = weight(key, parameter.shape, generator)
            if name in FP8 and "proj" in key:
                tensors, values = quantize(name, key, values)
            else:
                tensors = {key: values.bfloat16()}
                values = tensors[key].float()
            parameter.copy_(values)
            stored.update(tensors)
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})
    written = json.loads(config.to_json_string(use_diff=False))
    written = {key: written[key] for key in sorted(written) if key in config.to_dict() and not key.startswith("_")}
    written.update(architectures=[type(model).__name__], model_type=config.model_type, dtype="bfloat16")
    if name in FP8:
        written["quantization_config"] = FP8[name]
    if change:
        change(written)
    (directory / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    save_file(answers(model, generator), directory / "golden.safetensors")


@torch.no_grad()
def answers(model, generator):
    golden = {}
    for n, length in enumerate([1, 7, 45]):
        prompt = torch.randint(0, 512, (length,), generator=generator)
        golden[f"prompt.{n}"] = prompt
        golden[f"logits.{n}"] = model(prompt[None], use_cache=False).logits[0]
        ids, gaps = prompt, []
        for _ in range(32):
            best = model(ids[None], use_cache=False).logits[0, -1].topk(2)
            ids = torch.cat([ids, best.indices[:1]])
            gaps.append(best.values[0] - best.values[1])
        golden[f"greedy.{n}"] = ids[length:].clone()
        golden[f"gap.{n}"] = torch.stack(gaps)
    return golden


def make_rope(name):
    """The rotary tables as transformers builds them from the config.json that was written."""
    config = json.loads((HERE / name / "config.json").read_text())
    config.pop("quantization_config", None)
    config = AutoConfig.for_model(**config)
    rotary = AutoModelForCausalLM.from_config(config).model.rotary_emb
    tables = {}
    for layer_type in ["", "full_attention", "sliding_attention"]:
        prefix = layer_type and layer_type + "_"
        if hasattr(rotary, prefix + "inv_freq"):
            suffix = layer_type and "." + layer_type
            tables["inv_freq" + suffix] = getattr(rotary, prefix + "inv_freq").float().clone()
            tables["attention_factor" + suffix] = torch.tensor(float(getattr(rotary, prefix + "attention_scaling")))
    assert tables, name
    save_file(tables, HERE / name / "rope.safetensors")


def check(name):
    """The checkpoint as written, read back by transformers, gives the same logits."""
    if name in FP8:
        return
    model = AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32, attn_implementation="eager").eval()
    golden = load_file(HERE / name / "golden.safetensors")
    with torch.no_grad():
        logits = model(golden["prompt.2"][None], use_cache=False).logits[0]
    error = (logits - golden["logits.2"]).norm() / golden["logits.2"].norm()
    assert error < 1e-6, (name, error)
    print(f"{name}: read back, relative difference {error:.1e}, std {logits.std():.2f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or [*CASES, *KEPT]:
        if name in CASES:
            make(name)
        make_rope(name)
        check(name)
