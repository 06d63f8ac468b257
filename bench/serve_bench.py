#!/usr/bin/env python3
"""Whole servers in turn: Graft and llama-server, same model, threads, context and requests.

Starts both, then alternates rounds: N streams at once, each with a prompt of its own given as token
ids, greedy, a fixed number of tokens. Prints tokens per second of each side and the median of the
paired ratios. The idle server sleeps. Standard library only.

usage: serve_bench.py MODEL.gguf [--adapters DIR...] [--graft PATH] [--llama-server PATH]
                      [--streams 8] [--prompt 96] [--tokens 64] [--rounds 7] [--threads 2]
"""

import argparse
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
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

    def complete(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        if "error" in answer:
            sys.exit(f"{self.name}: {answer['error']}")
        return answer["usage"]["completion_tokens"]

    def memory_mb(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def run_round(server, bodies):
    """Sends all bodies at once; tokens per second over the whole round."""
    counts = [0] * len(bodies)

    def one(i):
        counts[i] = server.complete(bodies[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


def bodies_for(options, round_number, models):
    """Requests with prompts that no earlier round had, so that no cache can help."""
    bodies = []
    for stream in range(options.streams):
        prompt = [(round_number * 7919 + stream * 104729 + i * 37) % 40000 + 100
                  for i in range(options.prompt)]
        body = {"prompt": prompt, "max_tokens": options.tokens, "temperature": 0,
                "ignore_eos": True, "cache_prompt": False}
        if models:
            body["model"] = models[stream % len(models)]
        bodies.append(body)
    return bodies


def compare(title, options, graft, graft_models, peer):
    ours, theirs, ratios = [], [], []
    for number in range(options.rounds + 1):
        a = run_round(graft, bodies_for(options, 2 * number, graft_models))
        b = run_round(peer, bodies_for(options, 2 * number + 1, []))
        if number == 0:
            continue  # warm-up
        ours.append(a)
        theirs.append(b)
        ratios.append(a / b)
    print(f"| {title} | {statistics.median(ours):.1f} | {statistics.median(theirs):.1f} | "
          f"{statistics.median(ratios):.2f} |", flush=True)


def main():
    cache = Path(os.environ.get("GRAFT_CACHE", Path.home() / ".cache/graft"))
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--adapters", nargs="*", default=[])
    parser.add_argument("--graft", default=str(root / "build/release/graft"))
    parser.add_argument("--llama-server",
                        default=str(cache / "build/llama-tools/bin/llama-server"))
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--module-precision", default="f16")
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
    print("| | graft | llama-server, base | ratio |\n|---|---|---|---|")
    try:
        compare("base only", options, graft, ["base"], peer)
        if names:
            compare(f"{len(names)} different adapters", options, graft, names, peer)
            compare("one adapter", options, graft, names[:1], peer)
        print(f"\nresident memory: graft {graft.memory_mb():.0f} MB, "
              f"llama-server {peer.memory_mb():.0f} MB")
    finally:
        graft.stop()
        peer.stop()


if __name__ == "__main__":
    main()
