"""A llama GGUF file of F32, Q4_1 and Q8_0 tensors as a Hugging Face checkpoint of bf16 weights, so that the GPU and the
CPU compute from the very same numbers. Enough of the format for SmolLM2-135M-Instruct.Q4_1."""

import json
import pathlib
import struct

import torch
from safetensors.torch import save_file

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at]).decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(count)]
        return self.number(SCALARS[kind])


def dequantized(kind, data, count):
    """`count` elements of a tensor in f32."""
    if kind == 0:
        return torch.frombuffer(bytearray(data[:4 * count]), dtype=torch.float32)
    size = {3: 20, 8: 34}[kind]
    blocks = torch.frombuffer(bytearray(data[:count // 32 * size]), dtype=torch.uint8).view(-1, size)
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    if kind == 8:
        return (blocks[:, 2:].contiguous().view(torch.int8).float() * scale).flatten()
    minimum = blocks[:, 2:4].contiguous().view(torch.float16).float()
    packed = blocks[:, 4:]
    return (torch.cat((packed & 15, packed >> 4), 1).float() * scale + minimum).flatten()


def unpermuted(weight, heads):
    """Rows in Hugging Face's order of a head's halves."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def convert(path, directory):
    """Writes the checkpoint."""
    data = memoryview(pathlib.Path(path).read_bytes())
    reader = Reader(data)
    reader.at = 8
    n_tensors, n_values = reader.number("Q"), reader.number("Q")
    meta = {reader.text(): reader.value(reader.number("I")) for _ in range(n_values)}
    infos = []
    for _ in range(n_tensors):
        name, n_dims = reader.text(), reader.number("I")
        shape = [reader.number("Q") for _ in range(n_dims)][::-1]
        infos.append((name, shape, reader.number("I"), reader.number("Q")))
    alignment = meta.get("general.alignment", 32)
    base = -(-reader.at // alignment) * alignment
    heads, kv_heads = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
    tensors = {}
    for name, shape, kind, offset in infos:
        weight = dequantized(kind, data[base + offset:], torch.Size(shape).numel()).view(shape)
        part = name.removesuffix(".weight")
        if part in ("token_embd", "output_norm", "output"):
            full = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[part]
        else:
            _, layer, part = part.split(".")
            weight = unpermuted(weight, heads if part == "attn_q" else kv_heads) if part in ("attn_q", "attn_k") else weight
            full = f"model.layers.{layer}.{NAMES[part]}"
        tensors[f"{full}.weight"] = weight.to(torch.bfloat16).contiguous()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_size": meta["llama.embedding_length"], "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"], "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "vocab_size": tensors["model.embed_tokens.weight"].shape[0],
        "max_position_embeddings": meta["llama.context_length"], "rope_theta": meta["llama.rope.freq_base"],
        "rms_norm_eps": meta["llama.attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }
    target = pathlib.Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, str(target / "model.safetensors"), metadata={"format": "pt"})
