#!/usr/bin/env python3
"""Writes a llama-architecture GGUF with random Q4_0 weights at 8B shapes and few layers.

Step times of such a model relate to each other as those of a real 8B model do, at a fraction of the
memory; its text is noise. Needs: pip install numpy==2.4.6 gguf==0.19.0
Run:   python bench/make_shape_model.py OUT.gguf [--layers 4]
"""

import argparse
import sys
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "golden"))
from tiny_gguf import add_vocabulary, finish, vocabulary  # noqa: E402

N_EMBD, N_HEAD, N_HEAD_KV, N_FF, HEAD = 4096, 32, 8, 14336, 128


def q4_0(rng, n_out, n_in):
    """Random blocks of 32 values: an f16 scale and 16 bytes of nibbles."""
    blocks = np.empty((n_out, n_in // 32, 18), dtype=np.uint8)
    scale = np.float16(0.3 / np.sqrt(n_in)).view(np.uint16)
    blocks[:, :, 0] = scale & 255
    blocks[:, :, 1] = scale >> 8
    blocks[:, :, 2:] = rng.integers(0, 256, (n_out, n_in // 32, 16), dtype=np.uint8)
    return blocks.reshape(n_out, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    n_vocab = len(vocabulary()[0])
    writer = gguf.GGUFWriter(options.out, "llama")
    writer.add_string("general.type", "model")
    writer.add_string("general.name", "shapes-8b")
    for key, value in {"block_count": options.layers, "context_length": 8192,
                       "embedding_length": N_EMBD, "feed_forward_length": N_FF,
                       "attention.head_count": N_HEAD, "attention.head_count_kv": N_HEAD_KV,
                       "rope.dimension_count": HEAD, "vocab_size": n_vocab}.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    add_vocabulary(writer)

    def add_matrix(name, n_out, n_in):
        writer.add_tensor(name, q4_0(rng, n_out, n_in), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def add_norm(name):
        writer.add_tensor(name, np.ones(N_EMBD, dtype=np.float32))

    add_matrix("token_embd.weight", n_vocab, N_EMBD)
    add_matrix("output.weight", n_vocab, N_EMBD)
    add_norm("output_norm.weight")
    for layer in range(options.layers):
        block = f"blk.{layer}."
        add_norm(block + "attn_norm.weight")
        add_norm(block + "ffn_norm.weight")
        add_matrix(block + "attn_q.weight", N_HEAD * HEAD, N_EMBD)
        add_matrix(block + "attn_k.weight", N_HEAD_KV * HEAD, N_EMBD)
        add_matrix(block + "attn_v.weight", N_HEAD_KV * HEAD, N_EMBD)
        add_matrix(block + "attn_output.weight", N_EMBD, N_HEAD * HEAD)
        add_matrix(block + "ffn_gate.weight", N_FF, N_EMBD)
        add_matrix(block + "ffn_up.weight", N_FF, N_EMBD)
        add_matrix(block + "ffn_down.weight", N_EMBD, N_FF)
    finish(writer)


if __name__ == "__main__":
    main()
