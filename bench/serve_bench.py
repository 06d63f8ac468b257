#!/usr/bin/env python3
"""Whole servers in turn: Graft and llama-server, same model, threads, context and requests.

Starts both, then alternates rounds of `graft bench serve`: N streams at once, each with a prompt of
its own given as token ids, a fixed number of tokens. Prints medians of each side and the medians of
the paired ratios, end to end and for the phase in which all streams decode; the time to the first
token (graft / llama-server, median); and the most processor time that the client took. The idle
server sleeps. Standard library only.

usage: serve_bench.py MODEL.gguf [--adapters DIR...] [--graft PATH] [--llama-server PATH]
                      [--streams 8] [--requests N] [--prompt 96] [--common-prefix 0] [--tokens 64]
                      [--rounds 7] [--threads 2] [--rows base mixed one]
"""

import argparse
import http.client
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One server process on a port of its own."""

    def __init__(self, name, command):
        self.name = name
        self.port = free_port()
        self.log = open(f"/tmp/serve_bench_{name}.log", "w", encoding="utf-8")
        self.process = subprocess.Popen(command + ["--port", str(self.port)], stdout=self.log,
                                        stderr=subprocess.STDOUT)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{name} stopped at start; see {self.log.name}")
            if self.status("/health") == 200:
                return
            time.sleep(0.1)
        sys.exit(f"{name} was not ready after a minute; see {self.log.name}")

    def status(self, path):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0

    def memory_mb(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def run_round(server, options, models, seed):
    """All streams at once, with prompts that no earlier round had; the load test's numbers."""
    command = [options.graft, "bench", "serve", f"http://127.0.0.1:{server.port}", "--json",
               "--streams", str(options.streams), "--requests", str(options.requests or options.streams),
               "--prompt-unit", "tokens", "--vocab", "40000", "--prompt-length", str(options.prompt),
               "--common-prefix", str(options.common_prefix), "--max-tokens", str(options.tokens),
               "--temperature", str(options.temperature), "--seed", str(seed)]
    if options.temperature > 0:
        command += ["--fields", json.dumps({"top_p": 0.95, "top_k": 0, "min_p": 0})]
    for model in models:
        command += ["--model", model]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{server.name}: {result.stdout}{result.stderr}")
    return json.loads(result.stdout)


SEEDS = itertools.count(1)  # no prompt twice, or a server would have it in its cache


def compare(title, options, graft, graft_models, peer):
    pairs = []
    for number in range(options.rounds + 1):
        ours = run_round(graft, options, graft_models, next(SEEDS))
        theirs = run_round(peer, options, [], next(SEEDS))
        if number > 0:  # the first pair warms up
            pairs.append((ours, theirs))

    def median(value):
        return statistics.median(value(ours, theirs) for ours, theirs in pairs)

    def ratio(key):
        return median(lambda ours, theirs: ours[key] / theirs[key] if theirs[key] else float("nan"))

    whole, decode = "tokens_per_second", "all_decode_tokens_per_second"
    client = max(one["client_cpu"] for pair in pairs for one in pair)
    print(f"| {title} | {median(lambda a, _: a[whole]):.1f} | {median(lambda _, b: b[whole]):.1f} | "
          f"{ratio(whole):.2f} | {ratio(decode):.2f} | "
          f"{median(lambda a, _: a['first_token_ms']['p50']):.0f} / "
          f"{median(lambda _, b: b['first_token_ms']['p50']):.0f} | {client:.1%} |", flush=True)


RELEASE = Path(__file__).resolve().parent.parent / "build/release"


def common_arguments(description):
    """The parser of every bench that starts servers."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--graft", default=str(RELEASE / "graft"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    return parser


def main():
    cache = Path(os.environ.get("GRAFT_CACHE", Path.home() / ".cache/graft"))
    parser = common_arguments(__doc__)
    parser.add_argument("--adapters", nargs="*", default=[])
    parser.add_argument("--llama-server",
                        default=str(cache / "build/llama-tools/bin/llama-server"))
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--requests", type=int, default=0, help="per round; default: one a stream")
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--common-prefix", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--module-precision", default="f16")
    parser.add_argument("--rows", nargs="+", choices=["base", "mixed", "one"],
                        default=["base", "mixed", "one"])
    options = parser.parse_args()

    cells = options.streams * (options.prompt + options.tokens + 32)
    context = max(4096, (cells + 255) // 256 * 256)
    names = [f"m{i}" for i in range(len(options.adapters))]
    graft = Server("graft", [
        options.graft, "serve", options.model, "--ctx", str(context), "--max-seqs",
        str(options.streams), "--threads", str(options.threads), "--module-precision",
        options.module_precision]
        + [flag for name, path in zip(names, options.adapters)
           for flag in ("--module", f"{name}={path}")])
    peer = Server("llama-server", [
        options.llama_server, "-m", options.model, "-c", str(context), "-np",
        str(options.streams), "-t", str(options.threads), "-tb", str(options.threads),
        "-fa", "on"])
    print(f"{options.streams} streams, prompts of {options.prompt}, {options.tokens} tokens out, "
          f"tokens per second\n")
    print("| | graft | llama-server, base | ratio | ratio, all decode | first token ms | client |\n"
          "|---|---|---|---|---|---|---|")
    try:
        if "base" in options.rows:
            compare("base only", options, graft, ["base"], peer)
        if names and "mixed" in options.rows:
            compare(f"{len(names)} different adapters", options, graft, names, peer)
        if names and "one" in options.rows:
            compare("one adapter", options, graft, names[:1], peer)
        print(f"\nresident memory: graft {graft.memory_mb():.0f} MB, "
              f"llama-server {peer.memory_mb():.0f} MB")
    finally:
        graft.stop()
        peer.stop()


if __name__ == "__main__":
    main()
