"""Says how far the logits move when an engine makes a known fault: the table in README.md.

Each fault is applied to the reference itself. A golden test is worth something only while these
distances are far above its tolerance. Run as `make_golden.py --distances`.
"""

import json

import numpy as np
import torch

import make_golden as golden
from tiny_gguf import unpermute


def lora_modules(model, ending=""):
    """Yields (name, module) of every adapted module whose path ends so."""
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and name.endswith(ending):
            yield name, module


def scale_all(factor):
    def fault(model):
        for _, module in lora_modules(model):
            for name in module.scaling:
                module.scaling[name] *= factor
    return fault


def forget_permutation(model):
    """What an engine computes that adds HF's B rows to GGUF's permuted Q and K rows."""
    config = model.config
    for ending, n_head in (("q_proj", config.num_attention_heads),
                           ("k_proj", config.num_key_value_heads)):
        for _, module in lora_modules(model, ending):
            for factor in module.lora_B.values():
                factor.weight.data = torch.from_numpy(
                    unpermute(factor.weight.detach().numpy(), n_head).copy())


def drop_site(ending):
    def fault(model):
        for _, module in lora_modules(model, ending):
            for name in module.scaling:
                module.scaling[name] = 0.0
    return fault


def plain_scale(model):
    """Ignores rsLoRA and every pattern: alpha / r of the config for all."""
    for _, module in lora_modules(model):
        for name in module.scaling:
            config = model.peft_config[name]
            module.scaling[name] = config.lora_alpha / config.r


def drop_bias(model):
    for _, module in lora_modules(model):
        for factor in module.lora_B.values():
            factor.bias.data.zero_()


def drop_embedding_scale(model):
    for _, module in lora_modules(model, "embed_tokens"):
        for name in module.scaling:
            module.scaling[name] /= model.config.hidden_size ** 0.5


def swap_gate_up(model):
    for _, module in lora_modules(model, "gate_up_proj"):
        for factor in module.lora_B.values():
            gate, up = factor.weight.data.chunk(2)
            factor.weight.data = torch.cat([up, gate])


# (case, fault, function)
FAULTS = [
    ("llama_linear", "scale 0.1% too large", scale_all(1.001)),
    ("llama_linear", "scale 1% too large", scale_all(1.01)),
    ("llama_linear", "Q and K not permuted", forget_permutation),
    ("llama_qk", "Q and K not permuted", forget_permutation),
    ("llama_linear", "layer 1 v_proj missed", drop_site("1.self_attn.v_proj")),
    ("llama_linear", "layer 0 k_proj missed", drop_site("0.self_attn.k_proj")),
    ("llama_tied_all", "head missed", drop_site("lm_head")),
    ("llama_tied_all", "embedding missed", drop_site("embed_tokens")),
    ("llama_rslora", "rsLoRA ignored", plain_scale),
    ("llama_patterns", "patterns ignored", plain_scale),
    ("llama_rslora_patterns", "rsLoRA and patterns ignored", plain_scale),
    ("llama_bias", "bias of B dropped", drop_bias),
    ("gemma3_embed", "embedding scale not applied", drop_embedding_scale),
    ("gemma3_linear", "scale 0.1% too large", scale_all(1.001)),
    ("phi3_linear", "gate and up halves swapped", swap_gate_up),
    ("qwen2_linear", "scale 0.1% too large", scale_all(1.001)),
    ("qwen3moe_attention", "scale 0.1% too large", scale_all(1.001)),
    ("llama_sum_80_20", "both scales 0.1% too large", scale_all(1.001)),
]


def stored(root):
    """{case name: logits} of golden.json."""
    index = json.loads((root / "golden.json").read_text())
    blob = (root / index["logits"]).read_bytes()
    result = {}
    for case in index["cases"]:
        n = len(case["rows"]) * index["n_vocab"]
        values = np.frombuffer(blob, "<f4", n, case["offset"])
        result[case["name"]] = (case, values.reshape(-1, index["n_vocab"]))
    return result


def print_distances(root):
    kept = stored(root)
    cases = {name: (model, adapters) for name, model, adapters in golden.all_cases()}
    print("| case | fault | largest logit difference |\n|---|---|---|")
    for name, (case, values) in kept.items():
        if case["adapters"] and name.endswith(".long") and "_gguf" not in name:
            moved = np.abs(values - kept[case["base"]][1]).max()
            print(f"| {name.removesuffix('.long')} | no adapter at all | {moved:.2g} |")
    for name, label, fault in FAULTS:
        model_name, adapters = cases[name]
        model = golden.with_adapters(model_name, adapters, root / "adapters")
        fault(model)
        logits = golden.last_logits(model, kept[f"{name}.long"][0]["tokens"])
        moved = np.abs(logits - kept[f"{name}.long"][1]).max()
        print(f"| {name} | {label} | {moved:.2g} |")
