#!/usr/bin/env python3
"""Writes the seeds of the format readers' fuzz targets: tiny files that the readers accept, so that
the fuzzer starts behind the first checks. Needs only the standard library.

    python3 fuzz/make_corpus.py
"""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).parent / "corpus"


def write(target, name, content):
    folder = ROOT / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def safetensors(tensors):
    header, section = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(section), len(section) + len(values)]}
        section += values
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + section


def f32(count):
    return struct.pack(f"<{count}f", *range(count))


def pair(module, rank, n_in, n_out):
    prefix = f"base_model.model.model.layers.{module}"
    return {f"{prefix}.lora_A.weight": ("F32", [rank, n_in], f32(rank * n_in)),
            f"{prefix}.lora_B.weight": ("F32", [n_out, rank], f32(n_out * rank))}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(keys, tensors):
    body, section = b"", b""
    for name, (kind, value) in keys.items():
        body += text(name) + struct.pack("<I", kind)
        body += {8: text, 6: lambda v: struct.pack("<f", v), 4: lambda v: struct.pack("<I", v),
                 9: lambda v: struct.pack(f"<IQ{len(v)}I", 4, len(v), *v)}[kind](value)
    for name, (dims, kind, values) in tensors.items():
        body += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(section))
        section += values + bytes(-len(values) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + body
    return head + bytes(-len(head) % 32) + section


def lora_keys():
    return {"general.type": (8, "adapter"), "general.architecture": (8, "llama"),
            "adapter.type": (8, "lora"), "adapter.lora.alpha": (6, 8.0)}


def main():
    write("fuzz_safetensors", "dense", safetensors(pair("0.self_attn.q_proj", 1, 16, 16)))
    write("fuzz_safetensors", "expert", safetensors(pair("0.mlp.experts.1.up_proj", 1, 16, 24)))
    write("fuzz_safetensors", "embedding", safetensors({
        "base_model.model.model.embed_tokens.lora_embedding_A": ("F16", [1, 20], bytes(40)),
        "base_model.model.model.embed_tokens.lora_embedding_B": ("BF16", [16, 1], bytes(32))}))

    plain = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "use_rslora": True,
             "target_modules": ["q_proj"], "bias": "none", "init_lora_weights": True}
    write("fuzz_peft_config", "plain", json.dumps(plain).encode())
    write("fuzz_peft_config", "patterns", json.dumps({
        **plain, "rank_pattern": {"^model\\.layers\\.0.*q_proj": 3},
        "alpha_pattern": {".*\\.layers\\.3\\..*(q_proj|v_proj)": 1.5}}).encode())
    write("fuzz_peft_config", "unsupported", json.dumps({
        **plain, "use_dora": True, "modules_to_save": ["lm_head"],
        "layer_replication": [[0, 4]]}).encode())

    write("fuzz_gguf", "dense", gguf(lora_keys(), {
        "blk.0.ffn_up.weight.lora_a": ([16, 1], 0, f32(16)),
        "blk.0.ffn_up.weight.lora_b": ([1, 24], 0, f32(24))}))
    write("fuzz_gguf", "expert", gguf(
        {**lora_keys(), "general.alignment": (4, 32), "list": (9, [1, 2])}, {
            "blk.0.ffn_up_exps.weight.lora_a": ([16, 1, 3], 1, bytes(96)),
            "blk.0.ffn_up_exps.weight.lora_b": ([1, 24, 3], 30, bytes(144))}))

    schema = {"$defs": {"n": {"type": "object", "properties": {
        "v": {"type": "integer", "minimum": -3}, "next": {"$ref": "#/$defs/n"}},
        "required": ["v"], "additionalProperties": {"type": "null"}}}, "anyOf": [
            {"$ref": "#/$defs/n"}, {"type": "array", "items": {"enum": ["a", 1]}, "maxItems": 2},
            {"type": ["string", "null"], "pattern": "^a[\\d\"]+$"},
            {"type": "string", "format": "date"}]}
    write("fuzz_constraint", "schema", b"\0" + json.dumps(schema).encode())
    write("fuzz_constraint", "lenient", b"\1" + json.dumps({
        "type": "array", "uniqueItems": True, "prefixItems": [{"minimum": 0}, True]}).encode())
    write("fuzz_constraint", "grammar", b"\2" + b"""# both
root ::= item{1,3} | "(" root ")" # group
item ::= [^a-c\\]\\x41]? ("x" | "y")* <[3]>? .
""")
    write("fuzz_constraint", "regex", b"\3^(?:a|[^\\d-z]{2,})+?(x.)*\\.$|^no$")
    write("fuzz_constraint", "choice", b"\4yes\nno\nyesterday")
    body = b'{"prompt": "hi"}'
    post = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
    write("fuzz_http_request", "get", b"GET /v1/models?x=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n\r\n")
    write("fuzz_http_request", "length", post + b"Content-Length: 16\r\n\r\n" + body)
    write("fuzz_http_request", "chunked", post + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + body[:5] +
          b"\r\nb;ext=1\r\n" + body[5:] + b"\r\n0\r\nTrailer: t\r\n\r\n")
    write("fuzz_http_request", "trailer", post + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"y" * 1100)
    write("fuzz_http_request", "extension", post + b"Transfer-Encoding: chunked\r\n\r\n1;x=" + b"y" * 1100)
    write("fuzz_http_request", "trailing_host", post.replace(b"Host: x\r\n", b"") +
          b"Transfer-Encoding: chunked\r\n\r\n0\r\nHost: x\r\n\r\n")
    write("fuzz_http_request", "expect", post + b"Content-Length: 16\r\nExpect: 100-continue\r\n\r\n" + body)
    write("fuzz_http_request", "pipeline", b"HEAD /health HTTP/1.0\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    write("fuzz_http_request", "two_lengths", post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}")

    key = {"name": "a", "sha256": "0" * 64}
    full = {"name": "b", "sha256": "1" * 64, "tenant": "t", "role": "admin", "modules": ["x/*", "y"],
            "max_concurrent": 4, "requests_per_minute": 60, "tokens_per_minute": 1000}
    write("fuzz_key_file", "both", f"# keys\n\n{json.dumps(key)}\n{json.dumps(full)}\n".encode())
    tools = json.dumps([{"type": "function", "function": {
        "name": "get", "description": "Gets.", "parameters": {
            "type": "object", "properties": {"key": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["key"]}}}])
    call = '<tool_call>\n{"name": "get", "arguments": {"key": "a", "n": [1, {"x": 2}]}}\n</tool_call>'
    messages = json.dumps([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [{
            "id": "1", "type": "function", "function": {"name": "get", "arguments": "{\"key\":1}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "A"}])
    for name, parts in {"call": (tools, "", "", "", "Well. " + call),
                        "named": (tools, "", "", "get", call + call),
                        "history": (tools, '{"enable_thinking":false}', messages, "", "text"),
                        "keywords": (tools, '{"style":"x","reasoning_effort":"low"}', "", "", call[:40]),
                        "deep": (tools, "", "", "", call[:50] + "[" * 300)}.items():
        write("fuzz_chat_tools", name, b"\xff".join(part.encode() for part in parts))


if __name__ == "__main__":
    main()
