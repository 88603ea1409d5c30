"""Writes dequantize.json: random blocks of every GGML type with the values that the `gguf` package gives.

Run with `pip install gguf numpy`: python dequantize.py > dequantize.json
"""

import json

import gguf
import numpy as np

# Offsets of the half-precision scales in a block.
SCALES = {
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
random = np.random.default_rng(2026)
golden = {}
for name in ["F32", "F16", "BF16", *SCALES]:
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 64 if elements == 1 else 2
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in SCALES.get(name, []):
        scale = random.normal(0, 0.05, count).astype(np.float16)
        blocks[:, offset : offset + 2] = scale.view(np.uint8).reshape(count, 2)
    if elements == 1:
        values = random.normal(0, 1, count).astype(np.float32)
        blocks = gguf.quantize(values.reshape(1, -1), kind).view(np.uint8)
    values = gguf.dequantize(blocks.reshape(1, -1), kind).astype(np.float32)
    golden[name] = {"bytes": blocks.tobytes().hex(), "values": values.astype("<f4").tobytes().hex()}
print(json.dumps(golden, indent=0))
