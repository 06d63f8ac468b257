#!/usr/bin/env python3
"""Makes small adapters of the other kinds that PEFT saves, for tests of how a reader answers them.

Needs and environment: as make_golden.py.
Run:   python tests/golden/make_unsupported.py     (rewrites unsupported/)

All are for models/llama.gguf, but for those in OTHER_MODELS, and are written by PEFT itself. There
are no golden logits for them.
"""

import json
import shutil

import peft
import torch

from make_golden import HERE, make_model, seeded

Q = ["model.layers.0.self_attn.q_proj"]
CAUSAL = dict(task_type="CAUSAL_LM")
OTHER_MODELS = {"moe_parameters": "qwen3moe", "bias_lora_only": "qwen2"}
KINDS = {
    "dora": peft.LoraConfig(r=2, use_dora=True, target_modules=Q, **CAUSAL),
    "alora": peft.LoraConfig(r=2, target_modules=Q, alora_invocation_tokens=[5, 6], **CAUSAL),
    "modules_to_save": peft.LoraConfig(
        r=2, target_modules=Q, modules_to_save=["input_layernorm"], **CAUSAL),
    "bias_lora_only": peft.LoraConfig(r=2, target_modules=Q, bias="lora_only", **CAUSAL),
    "trainable_token_indices": peft.LoraConfig(
        r=2, target_modules=Q, trainable_token_indices=[7, 9], **CAUSAL),
    "layer_replication": peft.LoraConfig(
        r=2, target_modules=["q_proj"], layer_replication=[[0, 2], [1, 2]], **CAUSAL),
    "pissa": peft.LoraConfig(r=2, target_modules=Q, init_lora_weights="pissa", **CAUSAL),
    "moe_parameters": peft.LoraConfig(
        r=2, target_modules=[], target_parameters=["mlp.experts.gate_up_proj"], **CAUSAL),
    "adalora": peft.AdaLoraConfig(target_modules=Q, total_step=10, init_r=2, target_r=1, **CAUSAL),
    "ia3": peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[], **CAUSAL),
    "vera": peft.VeraConfig(r=2, target_modules=Q, **CAUSAL),
    "loha": peft.LoHaConfig(r=2, target_modules=Q, **CAUSAL),
    "lokr": peft.LoKrConfig(r=2, target_modules=Q, **CAUSAL),
    "oft": peft.OFTConfig(oft_block_size=8, target_modules=Q, **CAUSAL),
    "boft": peft.BOFTConfig(boft_block_size=8, target_modules=Q, **CAUSAL),
    "hra": peft.HRAConfig(r=2, target_modules=Q, **CAUSAL),
    "miss": peft.MissConfig(r=2, target_modules=Q, **CAUSAL),
    "vblora": peft.VBLoRAConfig(
        r=2, num_vectors=4, vector_length=16, target_modules=Q, **CAUSAL),
    "fourierft": peft.FourierFTConfig(n_frequency=8, target_modules=Q, **CAUSAL),
    "ln_tuning": peft.LNTuningConfig(target_modules=["input_layernorm"], **CAUSAL),
    "trainable_tokens": peft.TrainableTokensConfig(
        token_indices=[3, 4], target_modules=["embed_tokens"], **CAUSAL),
    "prompt_tuning": peft.PromptTuningConfig(num_virtual_tokens=3, **CAUSAL),
    "prefix_tuning": peft.PrefixTuningConfig(num_virtual_tokens=3, **CAUSAL),
}


def fill(name, model):
    """Random values, so that a reader that half applied a file would be seen to."""
    with torch.no_grad():
        for key, value in model.named_parameters():
            if value.requires_grad:
                noise = torch.randn(value.shape, generator=seeded(f"{name}.{key}"))
                value.copy_(0.1 * noise)


def write(name, config):
    model = peft.get_peft_model(make_model(OTHER_MODELS.get(name, "llama")), config)
    fill(name, model)
    folder = HERE / "unsupported" / name
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text())
    for key, value in settings.items():  # Sets are written in random order.
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            settings[key] = sorted(value)
    path.write_text(json.dumps(settings, indent=2) + "\n")


def main():
    torch.set_num_threads(1)
    shutil.rmtree(HERE / "unsupported", ignore_errors=True)
    torch.manual_seed(0)
    for name, config in KINDS.items():
        write(name, config)


if __name__ == "__main__":
    main()
