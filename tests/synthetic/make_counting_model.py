#!/usr/bin/env python3
"""Makes counting.gguf, a model whose greedy output is known, and three adapters that change it.

Needs: pip install numpy==2.4.6 gguf==0.19.0 safetensors==0.8.0
Run:   python tests/synthetic/make_counting_model.py

The rules, and how the weights carry them out, are in README.md. Nothing is random or trained.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "golden"))
from tiny_gguf import SPECIALS, add_vocabulary, finish, vocabulary  # noqa: E402

# The last message ends the prompt, so its last character decides how the answer begins.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] }}{% if not loop.last %}{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}"
)
MERGES = ["~ ~"]  # A vocabulary needs one merge; without others, one character is one token.
LETTERS, DIGITS = "abcdefghijklmnopqrstuvwxyz", "0123456789"
OTHER, END = "other", "end"

N_EMBD, N_FF, N_HEAD, N_HEAD_KV, HEAD_DIM, N_LAYER = 128, 96, 2, 1, 16, 2
# Residual stream: which dimension means what.
CLASSES = [*LETTERS, *DIGITS, OTHER]  # what the current token is; upper case counts as lower
ANSWERS = [*LETTERS, *LETTERS.upper(), *DIGITS, END]  # what the next token will be
CLASS = {name: i for i, name in enumerate(CLASSES)}
ANSWER = {name: len(CLASSES) + i for i, name in enumerate(ANSWERS)}
BACK, STEP2, ONE, MARKER = range(len(CLASSES) + len(ANSWERS), len(CLASSES) + len(ANSWERS) + 4)
# Attention values: dimension 0 counts markers, dimension 1 is always 1.
V_MARKER, V_ONE = 0, 1
FORCE = 2.0  # how much more a changed rule weighs than the base rule


def step(name, by):
    """The class or answer that lies `by` places after one; letters end, digits go round."""
    if name == OTHER:
        return "a" if by > 0 else "z"
    if name in DIGITS:
        return DIGITS[(int(name) + by) % 10]
    place = LETTERS.index(name) + by
    return LETTERS[place] if 0 <= place < 26 else END


def token_ids():
    """Returns ({class: its token ids}, {answer: its token id}, number of tokens)."""
    tokens, _ = vocabulary(MERGES)
    classes = {name: [] for name in CLASSES}
    for token, text in enumerate(tokens):
        known = len(text) == 1 and text.lower() in CLASS and text.isascii()
        classes[text.lower() if known else OTHER].append(token)
    answers = {name: tokens.index(name) for name in ANSWERS if name != END}
    answers[END] = len(tokens) - len(SPECIALS) + SPECIALS.index("<|im_end|>")
    return classes, answers, len(tokens)


def embedding_and_head():
    classes, answers, n_vocab = token_ids()
    embd = np.zeros((n_vocab, N_EMBD), np.float32)
    embd[:, ONE] = 1
    for name, ids in classes.items():
        embd[ids, CLASS[name]] = 1
        embd[ids, ANSWER[step(name, +1)]] = 1  # the base rule
    embd[vocabulary(MERGES)[0].index("<"), MARKER] = 1
    head = np.zeros((n_vocab, N_EMBD), np.float32)
    for name, token in answers.items():
        head[token, ANSWER[name]] = 4
    return embd, head


def attention():
    """Finds "<" anywhere before. The last rotary pair turns so slowly that position has no say."""
    q = np.zeros((N_HEAD * HEAD_DIM, N_EMBD), np.float32)
    k = np.zeros((N_HEAD_KV * HEAD_DIM, N_EMBD), np.float32)
    v = np.zeros((N_HEAD_KV * HEAD_DIM, N_EMBD), np.float32)
    o = np.zeros((N_EMBD, N_HEAD * HEAD_DIM), np.float32)
    q[HEAD_DIM - 2, ONE] = 2
    k[HEAD_DIM - 2, MARKER] = 1
    v[V_MARKER, MARKER] = 1
    v[V_ONE, ONE] = 1
    o[BACK, V_MARKER] = 1
    return q, k, v, o


def feed_forward():
    """One unit per class and rule: the gate reads the rule, the other factor reads the class."""
    gate = np.zeros((N_FF, N_EMBD), np.float32)
    up = np.zeros((N_FF, N_EMBD), np.float32)
    down = np.zeros((N_EMBD, N_FF), np.float32)
    unit = 0
    for rule, by in ((BACK, -1), (STEP2, +2)):
        for name in CLASSES:
            if step(name, by) == step(name, +1):
                continue
            gate[unit, rule] = 1
            up[unit, CLASS[name]] = 1
            down[ANSWER[step(name, by)], unit] += FORCE
            down[ANSWER[step(name, +1)], unit] -= FORCE
            unit += 1
    assert unit <= N_FF
    return gate, up, down


def tensors():
    embd, head = embedding_and_head()
    ones = np.ones(N_EMBD, np.float32)
    yield "token_embd.weight", embd
    yield "output.weight", head
    yield "output_norm.weight", ones
    zeros = [np.zeros_like(w) for w in (*attention(), *feed_forward())]
    for layer in range(N_LAYER):  # layer 0 attends, layer 1 applies the rules
        weights = [*attention(), *zeros[4:]] if layer == 0 else [*zeros[:4], *feed_forward()]
        names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
        for name, weight in zip(names, weights):
            yield f"blk.{layer}.{name}.weight", weight
        yield f"blk.{layer}.attn_norm.weight", ones
        yield f"blk.{layer}.ffn_norm.weight", ones


def write_counting_model(path):
    keys = {
        "context_length": 4096, "embedding_length": N_EMBD, "block_count": N_LAYER,
        "feed_forward_length": N_FF, "attention.head_count": N_HEAD,
        "attention.head_count_kv": N_HEAD_KV, "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM, "rope.dimension_count": HEAD_DIM,
        "vocab_size": token_ids()[2]}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "model")
    writer.add_string("general.name", "counting")
    writer.add_uint32("general.file_type", int(gguf.LlamaFileType.MOSTLY_Q8_0))
    for key, value in keys.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32("llama.rope.freq_base", 1e8)
    add_vocabulary(writer, MERGES, CHAT_TEMPLATE)
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for name, value in tensors():
        if value.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(value, q8_0), raw_dtype=q8_0)
        else:
            writer.add_tensor(name, value)
    finish(writer)


def write_adapter(name, module, a, b):
    """Saves one LoRA pair as PEFT would; alpha equals the rank, so the file's own scale is 1."""
    folder = HERE / "adapters" / name
    folder.mkdir(parents=True, exist_ok=True)
    key = f"base_model.model.{module}"
    factors = {f"{key}.lora_A.weight": a.astype(np.float32),
               f"{key}.lora_B.weight": b.astype(np.float32)}
    save_file(factors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {
        "base_model_name_or_path": "counting", "bias": "none", "inference_mode": True,
        "lora_alpha": len(a), "lora_dropout": 0.0, "peft_type": "LORA", "r": len(a),
        "target_modules": [module.split(".")[-1]], "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def write_adapters():
    # step2 switches its rule on behind the attention.
    a, b = np.zeros((1, N_HEAD * HEAD_DIM)), np.zeros((N_EMBD, 1))
    a[0, V_ONE], b[STEP2, 0] = 1, 0.3
    write_adapter("step2", "model.layers.0.self_attn.o_proj", a, b)
    # back makes every cached value look like a marker: it lives in the KV memory.
    a, b = np.zeros((1, N_EMBD)), np.zeros((N_HEAD_KV * HEAD_DIM, 1))
    a[0, ONE], b[V_MARKER, 0] = 1, 1
    write_adapter("back", "model.layers.0.self_attn.v_proj", a, b)
    # upper moves the head's small letters to capitals.
    _, answers, n_vocab = token_ids()
    a, b = np.zeros((26, N_EMBD)), np.zeros((n_vocab, 26))
    for i, letter in enumerate(LETTERS):
        a[i, ANSWER[letter]] = 1
        b[answers[letter.upper()], i] = 4
        b[answers[letter], i] = -4
    write_adapter("upper", "lm_head", a, b)


if __name__ == "__main__":
    write_counting_model(HERE / "counting.gguf")
    write_adapters()
