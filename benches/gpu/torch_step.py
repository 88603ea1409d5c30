"""What Plancher's decode step is compared with: the same step in PyTorch, its layer compiled by torch.compile, all of
it one CUDA graph that also picks the next token; random bf16 weights, keys and values in a fixed cache."""

import torch
import torch.nn.functional as F

from .weights import PRESETS

#: Positions of the cache are a multiple of this.
ROUND = 64


def layer(x, w, position, keys, values, mask, cos, sin, heads, kv_heads, head_dim, eps):
    """One layer for one token, `x` of shape (1, hidden)."""
    def normed(x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight

    def rotated(x):
        half = head_dim // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
    qkv = F.linear(normed(x, w["n1"]), w["qkv"]).view(heads + 2 * kv_heads, head_dim)
    q, k, v = qkv.split((heads, kv_heads, kv_heads))
    if "qn" in w:
        q, k = normed(q, w["qn"]), normed(k, w["kn"])
    q, k = rotated(q), rotated(k)
    keys.index_copy_(1, position, k.unsqueeze(1))
    values.index_copy_(1, position, v.unsqueeze(1))
    attended = F.scaled_dot_product_attention(q.view(1, heads, 1, head_dim), keys.unsqueeze(0), values.unsqueeze(0),
                                              attn_mask=mask, enable_gqa=True)
    x = x + F.linear(attended.reshape(1, heads * head_dim), w["o"])
    gate, up = F.linear(normed(x, w["n2"]), w["gate_up"]).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w["down"])


class Step:
    """A decode step of `preset` that begins at `context` positions and may go on for `steps`."""

    def __init__(self, preset, context, steps, compiled=None):
        config = PRESETS[preset]
        self.context, self.steps = context, steps
        hidden, ff, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        head_dim = config.get("head_dim", hidden // heads)
        eps = config["rms_norm_eps"]

        def random(*shape):
            return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0, shape[-1] ** -0.5)
        ones = lambda size: torch.ones(size, dtype=torch.bfloat16, device="cuda")  # noqa: E731
        self.layers = []
        for _ in range(config["num_hidden_layers"]):
            w = {"n1": ones(hidden), "n2": ones(hidden), "qkv": random((heads + 2 * kv_heads) * head_dim, hidden),
                 "o": random(hidden, heads * head_dim), "gate_up": random(2 * ff, hidden), "down": random(hidden, ff)}
            if config["model_type"] == "qwen3":
                w |= {"qn": ones(head_dim), "kn": ones(head_dim)}
            self.layers.append(w)
        embedding, norm = random(vocab, hidden), ones(hidden)
        head = embedding if config["tie_word_embeddings"] else random(vocab, hidden)
        length = -(-(context + steps) // ROUND) * ROUND
        caches = [random(2, kv_heads, length, head_dim) for _ in self.layers]
        frequencies = config["rope_theta"] ** (-torch.arange(0, head_dim, 2, device="cuda") / head_dim)
        angles = torch.outer(torch.arange(length, device="cuda").float(), frequencies).repeat(1, 2)
        cosines, sines = angles.cos().bfloat16(), angles.sin().bfloat16()
        self.position = torch.tensor([context], device="cuda")
        self.token = torch.tensor([1], device="cuda")
        positions = torch.arange(length, device="cuda")
        one_layer = torch.compile(layer, dynamic=False, fullgraph=True)

        def step():
            x = F.embedding(self.token, embedding)
            mask = (positions <= self.position).view(1, 1, 1, length)
            cos, sin = cosines[self.position], sines[self.position]
            for w, cache in zip(self.layers, caches):
                x = one_layer(x, w, self.position, cache[0], cache[1], mask, cos, sin, heads, kv_heads, head_dim, eps)
            x = F.rms_norm(x.float(), (hidden,), eps=eps).bfloat16() * norm
            self.token.copy_(F.linear(x, head).argmax(-1))
            self.position.add_(1)
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            step()

    def milliseconds(self):
        """Milliseconds a step by the device's clock, over all steps."""
        self.position.fill_(self.context)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(self.steps):
            self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / self.steps


def matmul_tflops(size=8192):
    """TFLOP/s of a bf16 product of random matrices, by cuBLAS as torch calls it."""
    a, b = (torch.empty((size, size), dtype=torch.bfloat16, device="cuda").normal_() for _ in range(2))
    for _ in range(3):
        a @ b
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(10):
        a @ b
    end.record()
    end.synchronize()
    return 10 * 2 * size**3 / (start.elapsed_time(end) * 1e9)
