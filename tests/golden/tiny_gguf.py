"""Writes tiny GGUF models: a byte-level BPE vocabulary and HF weights under their GGUF names.

Shared by make_golden.py and ../synthetic/make_counting_model.py. Needs numpy and gguf only.
"""

import gguf
import numpy as np

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Common English pairs, in merge order. "Ġ" is the byte-level spelling of a space.
MERGES = [
    "Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "Ġ o", "e n",
    "Ġ c", "i t", "i s", "a n", "o r", "e s", "Ġ b", "e d", "Ġ f", "in g", "Ġ p", "o u", "Ġa n",
    "a l", "a r", "Ġt o", "Ġ m", "Ġo f", "Ġ in", "Ġ d", "Ġ h", "Ġan d", "i c", "a s", "l e",
    "Ġt h", "i on", "o m", "l l", "en t", "Ġ n", "Ġ l", "s t", "Ġ re", "v e", "Ġ e", "r o",
    "l y", "Ġb e", "Ġ g", "Ġ y", "c t", "i d", "o t", "Ġy ou", "o w", "Ġh e",
]


def byte_symbols():
    """The printable character that byte-level BPE uses for each of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            symbols[byte] = chr(byte)
        else:
            symbols[byte] = chr(256 + extra)
            extra += 1
    return symbols


def vocabulary(merges=None):
    """Returns (tokens, merges): bytes 0..255 in order, then merged pairs, then SPECIALS."""
    merges = MERGES if merges is None else merges
    symbols = byte_symbols()
    tokens = [symbols[byte] for byte in range(256)]
    tokens += [pair.replace(" ", "") for pair in merges]
    return tokens + SPECIALS, merges


def add_vocabulary(writer, merges=None, chat_template=CHAT_TEMPLATE):
    tokens, merges = vocabulary(merges)
    n_plain = len(tokens) - len(SPECIALS)
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "gpt-2")
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [normal] * n_plain + [control] * len(SPECIALS))
    writer.add_array("tokenizer.ggml.merges", merges)
    writer.add_uint32("tokenizer.ggml.bos_token_id", n_plain)
    writer.add_uint32("tokenizer.ggml.eos_token_id", n_plain + 2)
    writer.add_uint32("tokenizer.ggml.padding_token_id", n_plain + 3)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_string("tokenizer.chat_template", chat_template)


def permute(weight, n_head):
    """Rows of Q or K from HF's rotate-half order to the interleaved order of GGUF llama files."""
    rows = weight.shape[0]
    halves = weight.reshape(n_head, 2, rows // n_head // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def unpermute(weight, n_head):
    """The inverse of permute()."""
    rows = weight.shape[0]
    pairs = weight.reshape(n_head, rows // n_head // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


LAYER_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(arch, hf_module):
    """GGUF name of an HF module path, without the .weight or .bias."""
    if hf_module in TOP_NAMES:
        return TOP_NAMES[hf_module]
    _, _, layer, rest = hf_module.split(".", 3)
    if arch == "gemma3" and rest == "post_attention_layernorm":
        return f"blk.{layer}.post_attention_norm"
    return f"blk.{layer}.{LAYER_NAMES[rest]}"


def gguf_tensors(arch, state, n_head, n_head_kv):
    """Yields (GGUF name, float32 array) for each entry of an HF state dict of numpy arrays."""
    for key, value in state.items():
        module, _, kind = key.rpartition(".")
        if module.endswith("mlp.experts"):
            layer = module.split(".")[2]
            if kind == "gate_up_proj":
                n_ff = value.shape[1] // 2
                yield f"blk.{layer}.ffn_gate_exps.weight", value[:, :n_ff]
                yield f"blk.{layer}.ffn_up_exps.weight", value[:, n_ff:]
            else:
                yield f"blk.{layer}.ffn_down_exps.weight", value
            continue
        if arch == "llama" and module.endswith("q_proj"):
            value = permute(value, n_head)
        if arch == "llama" and module.endswith("k_proj"):
            value = permute(value, n_head_kv)
        if arch == "gemma3" and module.endswith("norm"):
            value = value + 1
        yield f"{gguf_name(arch, module)}.{kind}", value


def write_model(path, arch, keys, state, name):
    """keys: metadata without the architecture's prefix, int, float or bool values."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", "model")
    writer.add_string("general.name", name)
    writer.add_uint32("general.file_type", 0)
    for key, value in keys.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{arch}.{key}", value)
    add_vocabulary(writer)
    tensors = gguf_tensors(
        arch, state, keys["attention.head_count"], keys["attention.head_count_kv"])
    for tensor_name, value in tensors:
        writer.add_tensor(tensor_name, np.ascontiguousarray(value, dtype=np.float32))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_adapter(path, arch, alpha, factors):
    """A GGUF LoRA file. factors: {GGUF weight name: (A [r,in], B [out,r])}, B already permuted."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, (a, b) in factors.items():
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(a, dtype=np.float32))
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray(b, dtype=np.float32))
    finish(writer)
