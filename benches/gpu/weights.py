"""Plancher's dummy weights as a checkpoint that transformers loads: the same numbers from the same rule (see
crates/plancher-model/src/dummy.rs), made by torch."""

import json
import pathlib

import torch
from safetensors.torch import save_file

from .evidence import ROOT

PRESETS = json.loads((ROOT / "crates/plancher-model/src/presets.json").read_text(encoding="utf-8"))


def _wrapped(value):
    """An unsigned 64-bit constant as the signed number with its bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fnv_1a(text):
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001b3) % (1 << 64)
    return value


def _shifted(z, bits):
    """A logical shift of signed numbers."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def elements(name, shape, amplitude, offset, device):
    """A tensor as Plancher makes it: SplitMix64 from the name's hash, scaled in f32 once, rounded to bf16."""
    count = 1
    for size in shape:
        count *= size
    out = torch.empty(count, dtype=torch.bfloat16, device=device)
    piece = 1 << 26
    for first in range(0, count, piece):
        index = torch.arange(first + 1, min(first + piece, count) + 1, dtype=torch.int64, device=device)
        z = index * _wrapped(0x9E3779B97F4A7C15) + _wrapped(fnv_1a(name))
        z = (z ^ _shifted(z, 30)) * _wrapped(0xBF58476D1CE4E5B9)
        z = (z ^ _shifted(z, 27)) * _wrapped(0x94D049BB133111EB)
        z = z ^ _shifted(z, 31)
        unit = (_shifted(z, 40) - (1 << 23)).to(torch.float32) * 2.0**-23
        scaled = unit * torch.tensor(amplitude, dtype=torch.float32, device=device)
        out[first:first + piece] = (scaled + offset if offset else scaled).to(torch.bfloat16)
    return out.view(shape)


def tensors(config, device="cuda"):
    """Every tensor of a llama or qwen3 configuration by its name in a checkpoint."""
    hidden, ff, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", hidden // heads)

    def matrix(name, rows, columns):
        amplitude = torch.tensor(3.0 / columns, dtype=torch.float64).to(torch.float32).sqrt().item()
        return name, elements(name, (rows, columns), amplitude, 0.0, device)

    def norm(name, size):
        return name, elements(name, (size,), 0.125, 1.0, device)
    yield matrix("model.embed_tokens.weight", vocab, hidden)
    yield norm("model.norm.weight", hidden)
    if not config["tie_word_embeddings"]:
        yield matrix("lm_head.weight", vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield norm(prefix + "input_layernorm.weight", hidden)
        yield norm(prefix + "post_attention_layernorm.weight", hidden)
        if config["model_type"] == "qwen3":
            yield norm(prefix + "self_attn.q_norm.weight", head_dim)
            yield norm(prefix + "self_attn.k_norm.weight", head_dim)
        for name, rows, columns in (
                ("self_attn.q_proj", heads * head_dim, hidden), ("self_attn.k_proj", kv_heads * head_dim, hidden),
                ("self_attn.v_proj", kv_heads * head_dim, hidden), ("self_attn.o_proj", hidden, heads * head_dim),
                ("mlp.gate_proj", ff, hidden), ("mlp.up_proj", ff, hidden), ("mlp.down_proj", hidden, ff)):
            yield matrix(f"{prefix}{name}.weight", rows, columns)


def save(preset, directory, device="cuda"):
    """Writes the dummy checkpoint of `preset`."""
    config = {key: value for key, value in PRESETS[preset].items() if not key.startswith("_")}
    path = pathlib.Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}), encoding="utf-8")
    save_file({name: tensor.cpu() for name, tensor in tensors(config, device)}, str(path / "model.safetensors"),
              metadata={"format": "pt"})
