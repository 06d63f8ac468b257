#!/usr/bin/env python3
"""Writes random LoRA adapters that fit a GGUF model, for benchmarks.

Needs: pip install numpy==2.4.6 gguf==0.19.0
Run:   python bench/make_adapters.py MODEL.gguf OUT [--count 8] [--rank 16] [--format peft|gguf]
       [--std 0.01] [--seed 1]

Makes OUT/adapter_000, OUT/adapter_001, ... (folders for peft, files ending .gguf for gguf), each
with float16 factors for every linear weight of every block, fused QKV and gate-up included. Expert
weights are left out. The effect on the logits is small (--std is that of B), so the text a model
writes stays sensible; --std 0 gives adapters that change nothing.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np

# GGUF weight of a block -> HF module of a decoder layer.
PROJECTIONS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def read_sites(path):
    """Returns (architecture, [(GGUF name, HF module, n_in, n_out)])."""
    reader = gguf.GGUFReader(path)
    arch = reader.get_field("general.architecture").contents()
    names = {tensor.name for tensor in reader.tensors}
    sites = []
    for tensor in reader.tensors:
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if not match or match[2] not in PROJECTIONS or len(tensor.shape) != 2:
            continue
        module = PROJECTIONS[match[2]]
        if match[2] == "ffn_up" and f"blk.{match[1]}.ffn_gate.weight" not in names:
            module = "mlp.gate_up_proj"
        n_in, n_out = (int(n) for n in tensor.shape)
        sites.append((tensor.name, f"model.layers.{match[1]}.{module}", n_in, n_out))
    return arch, sites


def factors(sites, rank, std, rng):
    """Yields (GGUF name, HF module, A [rank,n_in], B [n_out,rank]) as float16."""
    for name, module, n_in, n_out in sites:
        a = rng.standard_normal((rank, n_in), np.float32) / np.sqrt(n_in)
        b = rng.standard_normal((n_out, rank), np.float32) * std
        yield name, module, a.astype(np.float16), b.astype(np.float16)


def write_safetensors(path, tensors):
    """Header length (8 bytes), JSON header, then the values one after the other."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for key, value in tensors.items():
        header[key] = {"dtype": "F16", "shape": list(value.shape),
                       "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(value.tobytes())


def write_peft(path, pairs, rank):
    path.mkdir(parents=True, exist_ok=True)
    tensors, targets = {}, set()
    for _, module, a, b in pairs:
        tensors[f"base_model.model.{module}.lora_A.weight"] = a
        tensors[f"base_model.model.{module}.lora_B.weight"] = b
        targets.add(module.rsplit(".", 1)[1])
    write_safetensors(path / "adapter_model.safetensors", tensors)
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": None,
        "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
        "inference_mode": True, "target_modules": sorted(targets)}
    (path / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def write_gguf(path, pairs, rank, arch):
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for name, _, a, b in pairs:
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=positive, default=8)
    parser.add_argument("--rank", type=positive, default=16)
    parser.add_argument("--format", choices=["peft", "gguf"], default="peft")
    parser.add_argument("--std", type=float, default=0.01, help="standard deviation of B")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    arch, sites = read_sites(args.model)
    if not sites:
        sys.exit(f"{args.model}: no linear weight of a known name in any block")
    args.out.mkdir(parents=True, exist_ok=True)
    for i in range(args.count):
        pairs = factors(sites, args.rank, args.std, np.random.default_rng([args.seed, i]))
        name = args.out / f"adapter_{i:03}"
        if args.format == "peft":
            write_peft(name, pairs, args.rank)
        else:
            write_gguf(name.with_suffix(".gguf"), pairs, args.rank, arch)
    n = sum(args.rank * (n_in + n_out) for _, _, n_in, n_out in sites)
    print(f"{args.count} adapters of rank {args.rank} on {len(sites)} weights in {args.out}, "
          f"{2 * n / 1e6:.1f} MB each")


if __name__ == "__main__":
    main()
