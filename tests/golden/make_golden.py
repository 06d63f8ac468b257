#!/usr/bin/env python3
"""Makes the golden files: tiny random models, PEFT adapters for them, and the logits of both.

Needs: pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 gguf==0.19.0 safetensors==0.8.0
Run:   python tests/golden/make_golden.py               (rewrites models/, adapters/, golden.*)
       python tests/golden/make_golden.py --distances   (prints the table of README.md)

Every weight comes from a generator seeded with the name of its owner, so the files do not depend
on the order in which they are made. Logits are transformers + PEFT in float32 on one thread with
eager attention. See README.md for the layout of golden.json and golden.bin.
"""

import argparse
import copy
import json
import math
import os
import shutil
import zlib
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

from tiny_gguf import (  # noqa: E402
    gguf_name, permute, unpermute, vocabulary, write_adapter, write_model)

HERE = Path(__file__).parent
N_VOCAB = len(vocabulary()[0])
N_ROWS = 3
TOKEN_LISTS = {"short": 12, "long": 24}

COMMON = dict(
    vocab_size=N_VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
    attn_implementation="eager", bos_token_id=None, eos_token_id=None, pad_token_id=None)
ROPE = dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
GEMMA_ROPE = dict(rope_parameters={
    "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
# name: (GGUF architecture, HF config)
MODELS = {
    "llama": ("llama", hf.LlamaConfig(**COMMON, **ROPE, tie_word_embeddings=False)),
    "llama_tied": ("llama", hf.LlamaConfig(**COMMON, **ROPE, tie_word_embeddings=True)),
    "qwen2": ("qwen2", hf.Qwen2Config(**COMMON, **ROPE, tie_word_embeddings=False)),
    "qwen3": ("qwen3", hf.Qwen3Config(
        **COMMON, **ROPE, head_dim=32, tie_word_embeddings=True)),
    "gemma3": ("gemma3", hf.Gemma3TextConfig(
        **{**COMMON, "num_hidden_layers": 3}, **GEMMA_ROPE, head_dim=16, query_pre_attn_scalar=16,
        sliding_window=8, tie_word_embeddings=True,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    "phi3": ("phi3", hf.Phi3Config(
        **COMMON, original_max_position_embeddings=512, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                         "partial_rotary_factor": 1.0})),
    "qwen3moe": ("qwen3moe", hf.Qwen3MoeConfig(
        **COMMON, **ROPE, head_dim=32, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        tie_word_embeddings=False)),
}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LINEAR = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
# name: (model, LoraConfig arguments)
ADAPTERS = {
    "llama_linear": ("llama", dict(r=4, lora_alpha=8, target_modules=LINEAR)),
    "llama_second": ("llama", dict(r=4, lora_alpha=4, target_modules=LINEAR)),
    "llama_qk": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj"])),
    "llama_one_site": ("llama", dict(
        r=4, lora_alpha=8, target_modules=["model.layers.1.self_attn.v_proj"])),
    "llama_head": ("llama", dict(r=4, lora_alpha=8, target_modules=["lm_head"])),
    "llama_embed": ("llama", dict(r=4, lora_alpha=8, target_modules=["embed_tokens"])),
    "llama_rslora": ("llama", dict(
        r=8, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"])),
    "llama_patterns": ("llama", dict(
        r=4, lora_alpha=8, target_modules=LINEAR,
        rank_pattern={"v_proj": 2, r"layers\.1\.mlp\.up_proj": 6, r"^model\.layers\.0.*q_proj": 3},
        alpha_pattern={"layers.0.self_attn.k_proj": 1, "down_proj": 16, "v_proj": 3})),
    "llama_rslora_patterns": ("llama", dict(
        r=4, lora_alpha=6, use_rslora=True, target_modules=ATTENTION,
        rank_pattern={"q_proj": 9}, alpha_pattern={"o_proj": 2})),
    "llama_bias": ("llama", dict(r=4, lora_alpha=8, lora_bias=True, target_modules=LINEAR)),
    "llama_rank1": ("llama", dict(r=1, lora_alpha=2, target_modules=LINEAR)),
    "llama_rank3": ("llama", dict(r=3, lora_alpha=5, target_modules=LINEAR)),
    "llama_rank16": ("llama", dict(r=16, lora_alpha=16, target_modules=LINEAR)),
    "llama_tied_head": ("llama_tied", dict(r=4, lora_alpha=8, target_modules=["lm_head"])),
    "llama_tied_embed": ("llama_tied", dict(r=4, lora_alpha=8, target_modules=["embed_tokens"])),
    "llama_tied_all": ("llama_tied", dict(
        r=4, lora_alpha=8, target_modules=LINEAR + ["embed_tokens", "lm_head"])),
    "qwen2_linear": ("qwen2", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "qwen3_linear": ("qwen3", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "gemma3_linear": ("gemma3", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "gemma3_embed": ("gemma3", dict(r=4, lora_alpha=8, target_modules=["embed_tokens"])),
    "phi3_linear": ("phi3", dict(r=4, lora_alpha=8, target_modules=[
        "qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    "qwen3moe_attention": ("qwen3moe", dict(r=4, lora_alpha=8, target_modules=ATTENTION)),
}
# PEFT stores a copy of an adapted embedding by default; only these keep it.
KEEP_BASE_COPY = {"llama_embed"}
# Cases with several adapters or a scale: name -> (model, [(adapter, scale)])
MIXES = {
    "llama_sum_80_20": ("llama", [("llama_linear", 0.8), ("llama_second", 0.2)]),
    "llama_half": ("llama", [("llama_linear", 0.5)]),
    "llama_negative": ("llama", [("llama_linear", -0.5)]),
    "llama_rslora_scaled": ("llama", [("llama_rslora", 0.7)]),
    "llama_mixed_ranks": ("llama", [
        ("llama_rank1", 1.0), ("llama_rank3", 0.5), ("llama_rank16", 0.25)]),
    "llama_embed_and_head": ("llama", [("llama_embed", 1.0), ("llama_head", 1.0)]),
    "llama_tied_embed_and_head": ("llama_tied", [
        ("llama_tied_embed", 0.6), ("llama_tied_head", 0.9)]),
    "gemma3_sum": ("gemma3", [("gemma3_linear", 0.5), ("gemma3_embed", 0.75)]),
}
EXPERTS = "qwen3moe_experts"


def seeded(name):
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def weight_like(name, tensor, generator):
    """Random values that keep every layer's signal alive and logits a few units apart."""
    noise = torch.randn(tensor.shape, generator=generator)
    if "norm" in name:
        return (0.0 if "gemma3" in name else 1.0) + 0.2 * noise
    if name.endswith("bias"):
        return 0.5 * noise
    if "embed_tokens" in name or "lm_head" in name:
        return 0.4 * noise
    gain = 3.0 if "mlp.gate.weight" in name else 1.5
    return noise * gain / math.sqrt(tensor.shape[-1])


class TableGelu(torch.nn.Module):
    """GELU as ggml computes it: by a table over float16 inputs with float16 results.

    With exact GELU the reference would differ by 1.6e-3 whatever the adapters do, and a tolerance
    that lets that pass would hide small faults.
    """

    def forward(self, x):
        return torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()


def make_model(name):
    """Returns the random HF model of that name."""
    model = hf.AutoModelForCausalLM.from_config(
        copy.deepcopy(MODELS[name][1]), attn_implementation="eager").float().eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            value.copy_(weight_like(f"{name}.{key}", value, seeded(f"{name}.{key}")))
    if name == "gemma3":
        for layer in model.model.layers:
            layer.mlp.act_fn = TableGelu()
    model.config._name_or_path = f"tiny-{name}"
    model.name_or_path = f"tiny-{name}"
    return model


def gguf_keys(arch, config):
    head_dim = getattr(config, "head_dim", None) or 64 // config.num_attention_heads
    keys = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "attention.key_length": head_dim, "attention.value_length": head_dim,
        "rope.dimension_count": head_dim, "rope.freq_base": 10000.0, "vocab_size": N_VOCAB}
    if arch == "gemma3":
        keys |= {"attention.sliding_window": config.sliding_window, "rope.freq_base": 1000000.0,
                 "attention.sliding_window_pattern": 3, "rope.freq_base_swa": 10000.0}
    if arch == "phi3":
        keys["rope.scaling.original_context_length"] = config.original_max_position_embeddings
    if arch == "qwen3moe":
        keys |= {"expert_count": config.num_experts, "expert_used_count": config.num_experts_per_tok,
                 "expert_feed_forward_length": config.moe_intermediate_size}
    return keys


def model_state(model):
    """The HF state dict as numpy arrays, without a tied head."""
    state = {k: v.detach().numpy() for k, v in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight")
    return state


def fill_adapter(name, model):
    """Gives every factor a random value; B is far from zero, so a missed site shows."""
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "lora_" not in key:
                continue
            noise = torch.randn(value.shape, generator=seeded(f"{name}.{key}"))
            if "lora_embedding_A" in key:
                value.copy_(noise * 0.3)
            elif "lora_A" in key:
                value.copy_(noise / math.sqrt(value.shape[1]))
            else:
                value.copy_(noise * 0.3)


def make_adapter(name, out):
    """Saves one adapter through PEFT itself."""
    model_name, arguments = ADAPTERS[name]
    config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **arguments)
    model = get_peft_model(make_model(model_name), config)
    fill_adapter(name, model)
    model.save_pretrained(out / name, save_embedding_layers=name in KEEP_BASE_COPY)
    (out / name / "README.md").unlink(missing_ok=True)
    path = out / name / "adapter_config.json"
    settings = json.loads(path.read_text())
    for key, value in settings.items():  # Sets are written in random order.
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            settings[key] = sorted(value)
    path.write_text(json.dumps(settings, indent=2) + "\n")


def make_expert_adapter(out):
    """An adapter with one pair per expert, in the key format of PEFT on transformers 4."""
    config = MODELS["qwen3moe"][1]
    tensors = {}

    def add(module, n_in, n_out):
        generator = seeded(f"{EXPERTS}.{module}")
        key = f"base_model.model.{module}"
        a = torch.randn((4, n_in), generator=generator) / math.sqrt(n_in)
        tensors[f"{key}.lora_A.weight"] = a.numpy()
        tensors[f"{key}.lora_B.weight"] = torch.randn((n_out, 4), generator=generator).numpy() * 0.3

    d, n_ff = config.hidden_size, config.moe_intermediate_size
    for layer in range(config.num_hidden_layers):
        add(f"model.layers.{layer}.mlp.gate", d, config.num_experts)
        for expert in range(config.num_experts):
            module = f"model.layers.{layer}.mlp.experts.{expert}"
            add(f"{module}.gate_proj", d, n_ff)
            add(f"{module}.up_proj", d, n_ff)
            add(f"{module}.down_proj", n_ff, d)
    (out / EXPERTS).mkdir(parents=True)
    save_file(tensors, out / EXPERTS / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {
        "base_model_name_or_path": "tiny-qwen3moe", "bias": "none", "inference_mode": True,
        "lora_alpha": 8, "lora_dropout": 0.0, "peft_type": "LORA", "r": 4, "use_dora": False,
        "use_rslora": False, "target_modules": ["down_proj", "gate", "gate_proj", "up_proj"],
        "task_type": "CAUSAL_LM"}
    (out / EXPERTS / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def merge_experts(model, path, scale):
    """Adds the per-expert factors to the fused expert weights of transformers 5."""
    tensors = load_file(path / "adapter_model.safetensors")
    settings = json.loads((path / "adapter_config.json").read_text())
    scale *= settings["lora_alpha"] / settings["r"]
    with torch.no_grad():
        for key, a in tensors.items():
            if not key.endswith("lora_A.weight"):
                continue
            b = tensors[key.replace("lora_A", "lora_B")]
            delta = scale * torch.from_numpy(b @ a)
            parts = key.split(".")  # base_model.model.model.layers.L.mlp.gate | experts.E.NAME
            block = model.model.layers[int(parts[4])].mlp
            if parts[6] == "gate":
                block.gate.weight += delta
                continue
            expert, n_ff = int(parts[7]), block.experts.gate_up_proj.shape[1] // 2
            if parts[8] == "gate_proj":
                block.experts.gate_up_proj[expert, :n_ff] += delta
            elif parts[8] == "up_proj":
                block.experts.gate_up_proj[expert, n_ff:] += delta
            else:
                block.experts.down_proj[expert] += delta


def with_adapters(model_name, adapters, root):
    """Returns the model with [(adapter, scale)] active."""
    model = make_model(model_name)
    if not adapters:
        return model
    if any(name == EXPERTS for name, _ in adapters):
        assert len(adapters) == 1
        merge_experts(model, root / EXPERTS, adapters[0][1])
        return model
    first = adapters[0][0]
    model = PeftModel.from_pretrained(model, root / first, adapter_name=first)
    for name, _ in adapters[1:]:
        model.load_adapter(root / name, adapter_name=name)
    model.base_model.set_adapter([name for name, _ in adapters])
    for module in model.modules():
        for name, scale in adapters:
            if hasattr(module, "lora_A") and name in module.scaling:
                module.scaling[name] *= scale
    return model.eval()


def token_list(model_name, kind):
    """Random plain tokens; special tokens stay out."""
    generator = seeded(f"{model_name}.{kind}")
    return torch.randint(0, N_VOCAB - 4, (TOKEN_LISTS[kind],), generator=generator).tolist()


def last_logits(model, tokens):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
    return logits[0, -N_ROWS:].float().numpy()


def gguf_copy(name, adapter, root, out):
    """Writes a PEFT llama adapter of linear weights as a GGUF LoRA file."""
    tensors = load_file(root / adapter / "adapter_model.safetensors")
    config = MODELS["llama"][1]
    factors = {}
    for key, a in tensors.items():
        if not key.endswith("lora_A.weight"):
            continue
        module = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        b = tensors[key.replace("lora_A", "lora_B")]
        if module.endswith("q_proj"):
            b = permute(b, config.num_attention_heads)
        if module.endswith("k_proj"):
            b = permute(b, config.num_key_value_heads)
        factors[f"{gguf_name('llama', module)}.weight"] = (a, b)
    write_adapter(out / f"{name}.gguf", "llama", float(ADAPTERS[adapter][1]["lora_alpha"]), factors)


def general_name(name):
    """llama.cpp looks for tokens of the real Phi-3 in any file whose name contains "phi3"."""
    return f"tiny-{name.replace('phi3', 'phi')}"


def make_files(root):
    for folder in ("models", "adapters"):
        shutil.rmtree(root / folder, ignore_errors=True)
        (root / folder).mkdir()
    for name, (arch, config) in MODELS.items():
        write_model(root / "models" / f"{name}.gguf", arch, gguf_keys(arch, config),
                    model_state(make_model(name)), general_name(name))
    for name in ADAPTERS:
        make_adapter(name, root / "adapters")
    make_expert_adapter(root / "adapters")
    gguf_copy("llama_linear", "llama_linear", root / "adapters", root / "adapters")
    gguf_copy("llama_qk", "llama_qk", root / "adapters", root / "adapters")


def all_cases():
    """Yields (case name, model, [(adapter, scale)]); the base case of a model comes first."""
    for name in MODELS:
        yield f"{name}_base", name, []
    for name, (model, _) in ADAPTERS.items():
        yield name, model, [(name, 1.0)]
    yield EXPERTS, "qwen3moe", [(EXPERTS, 1.0)]
    yield f"{EXPERTS}_half", "qwen3moe", [(EXPERTS, 0.5)]
    for name, (model, adapters) in MIXES.items():
        yield name, model, adapters


def make_logits(root):
    cases, blob = [], bytearray()
    for name, model_name, adapters in all_cases():
        model = with_adapters(model_name, adapters, root / "adapters")
        for kind in TOKEN_LISTS:
            tokens = token_list(model_name, kind)
            cases.append({
                "name": f"{name}.{kind}", "model": f"models/{model_name}.gguf",
                "base": f"{model_name}_base.{kind}",
                "adapters": [{"path": f"adapters/{a}", "scale": s} for a, s in adapters],
                "tokens": tokens, "rows": list(range(len(tokens) - N_ROWS, len(tokens))),
                "offset": len(blob)})
            blob += last_logits(model, tokens).astype("<f4").tobytes()
    for name in ("llama_linear", "llama_qk"):  # The same logits for the GGUF form.
        for kind in TOKEN_LISTS:
            case = dict(next(c for c in cases if c["name"] == f"{name}.{kind}"))
            case["name"] = f"{name}_gguf.{kind}"
            case["adapters"] = [{"path": f"adapters/{name}.gguf", "scale": 1.0}]
            cases.append(case)
    index = {"format": 1, "logits": "golden.bin", "n_vocab": N_VOCAB, "cases": cases}
    text = json.dumps(index, indent=1)
    (root / "golden.json").write_text(text + "\n")
    (root / "golden.bin").write_bytes(blob)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--distances", action="store_true", help="print what each fault would cost")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.distances:
        from distances import print_distances
        print_distances(args.out)
        return
    make_files(args.out)
    make_logits(args.out)


if __name__ == "__main__":
    main()
