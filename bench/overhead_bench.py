#!/usr/bin/env python3
"""What a server costs beside the bare library: HTTP, JSON, sampling, detokenising.

Alternates rounds of `graft bench serve` on a running server with rounds of `step_bench decode`, which
computes the same number of streams, prompts and tokens in process and chooses nothing. Compares the
phase in which all streams decode; the idle server sleeps. At the end it asks the server how long
requests of a chat took from their last byte to their submission. With --busy it compares instead
the library's decode steps, quiet and beside a process that keeps one core busy. Standard library
only.

usage: overhead_bench.py MODEL.gguf [--graft PATH] [--step-bench PATH] [--prompt 96] [--tokens 128]
                         [--rounds 7] [--threads 2] [--chats 200] [--busy]
"""

import contextlib
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from serve_bench import RELEASE, Server, common_arguments, run_round


def bare(options, kind, streams):
    command = [options.step_bench, "decode", options.model, kind, str(streams), str(options.prompt),
               str(options.tokens)]
    threads = {"GRAFT_TEST_THREADS": str(options.threads)}
    return float(subprocess.run(command, capture_output=True, text=True, check=True,
                                env=os.environ | threads).stdout)


def print_row(title, pairs, ratio):
    print(f"| {title} | {statistics.median(a for a, _ in pairs):.1f} | "
          f"{statistics.median(b for _, b in pairs):.1f} | "
          f"{statistics.median(ratio(a, b) for a, b in pairs):.3f} |", flush=True)


def compare(title, server, options, kind, streams, temperature, seeds):
    options.streams, options.temperature = streams, temperature
    pairs = []
    for number in range(options.rounds + 1):
        served = run_round(server, options, ["base"], next(seeds))["all_decode_tokens_per_second"]
        pair = (served, bare(options, kind, streams))
        if number > 0:
            pairs.append(pair)
    print_row(title, pairs, lambda served, alone: served / alone)


@contextlib.contextmanager
def busy_core():
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def compare_busy(options):
    print("| tokens per second, 8 streams | quiet | one core busy | ratio |\n|---|---|---|---|")
    for kind in ("ours", "plain"):
        pairs = []
        for _ in range(options.rounds):
            quiet = bare(options, kind, 8)
            with busy_core():
                pairs.append((quiet, bare(options, kind, 8)))
        print_row(kind, pairs, lambda quiet, busy: busy / quiet)


def prepare_times(server, options):
    """Chats one after another; the log's own times, in milliseconds."""
    text = "Tell me about the sea, please. " * 13
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for number in range(options.chats):
        body = {"model": "base", "max_tokens": 1,
                "messages": [{"role": "user", "content": f"{number} {text}"}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"content-type": "application/json"})
        answer = json.loads(connection.getresponse().read())
    n_tokens = answer["usage"]["prompt_tokens"]
    log = Path(server.log.name).read_text(encoding="utf-8")
    times = [float(found) for found in re.findall(
        r'"path":"/v1/chat/completions".*?"prepare_ms":([0-9.]+)', log)]
    return n_tokens, sorted(times)


def main():
    parser = common_arguments(__doc__)
    parser.add_argument("--step-bench", default=str(RELEASE / "bench/step_bench"))
    parser.add_argument("--prompt", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    if options.busy:
        compare_busy(options)
        return
    options.requests, options.common_prefix = 0, 0
    server = Server("graft", [options.graft, "serve", options.model, "--ctx", "4096", "--max-seqs",
                              "8", "--threads", str(options.threads), "--log-format", "json"])
    seeds = iter(range(1, 1_000_000))
    try:
        print("| tokens per second while all decode | server | bare library | ratio |\n"
              "|---|---|---|---|")
        compare("8 streams, temperature 0", server, options, "ours", 8, 0, seeds)
        compare("8 streams, temperature 0.8, top_p 0.95", server, options, "ours", 8, 0.8, seeds)
        compare("1 stream, beside plain libllama", server, options, "plain", 1, 0, seeds)
        n_tokens, times = prepare_times(server, options)
        if len(times) < options.chats:
            sys.exit(f"the log tells of {len(times)} chats")
        print(f"\nchats of {n_tokens} tokens, last byte to submission: median "
              f"{statistics.median(times):.3f} ms, 99th percentile "
              f"{times[int(0.99 * len(times))]:.3f} ms")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
