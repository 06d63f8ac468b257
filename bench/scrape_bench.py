#!/usr/bin/env python3
"""What being scraped costs: rounds of `graft bench serve` with and without 20 scrapes a second.

Prints the median of the paired ratios of tokens per second (with over without), and the processor
time that one scrape takes of an idle server. Standard library only.

usage: scrape_bench.py MODEL.gguf [--adapters DIR...] [--graft PATH] [--streams 8] [--rounds 9]
                       [--threads 2] [--rate 20]
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from serve_bench import Server, free_port


class Scraper(threading.Thread):
    """GET /metrics at a fixed rate over one connection, until stopped."""

    def __init__(self, port, rate):
        super().__init__()
        self.port, self.interval, self.stopped = port, 1 / rate, threading.Event()
        self.n_bytes = self.n_scrapes = 0

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        due = time.monotonic()
        while not self.stopped.wait(max(0, due - time.monotonic())):
            connection.request("GET", "/metrics")
            self.n_bytes = len(connection.getresponse().read())
            self.n_scrapes += 1
            due += self.interval

    def stop(self):
        self.stopped.set()
        self.join()


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tokens_per_second(options, port, models, seed):
    command = [options.graft, "bench", "serve", f"http://127.0.0.1:{port}", "--json", "--streams",
               str(options.streams), "--prompt-length", "64", "-n", "96", "--seed", str(seed)]
    for model in models:
        command += ["-m", model]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    return json.loads(result.stdout)["tokens_per_second"]


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--adapters", nargs="*", default=[])
    parser.add_argument("--graft", default=str(root / "build/release/graft"))
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=20)
    options = parser.parse_args()

    names = [f"m{i}" for i in range(len(options.adapters))]
    monitor = free_port()
    server = Server("graft-scraped", [
        options.graft, "serve", options.model, "--max-seqs", str(options.streams), "--threads",
        str(options.threads), "--metrics-port", str(monitor)]
        + [flag for name, path in zip(names, options.adapters)
           for flag in ("--module", f"{name}={path}")])
    try:
        ratios = []
        for number in range(options.rounds + 1):
            quiet = tokens_per_second(options, server.port, names, 2 * number)
            scraper = Scraper(monitor, options.rate)
            scraper.start()
            scraped = tokens_per_second(options, server.port, names, 2 * number + 1)
            scraper.stop()
            if number > 0:  # the first pair warms up
                ratios.append(scraped / quiet)
        before, scraper = cpu_seconds(server.process.pid), Scraper(monitor, 1000)
        scraper.start()
        time.sleep(5)
        scraper.stop()
        cost_ms = 1000 * (cpu_seconds(server.process.pid) - before) / scraper.n_scrapes
    finally:
        server.stop()
    print(f"{options.rate:g} scrapes a second: {statistics.median(ratios):.3f} of the quiet "
          f"throughput (median of {len(ratios)} pairs)")
    print(f"one scrape: {cost_ms:.2f} ms of one processor, {scraper.n_bytes / 1024:.0f} KiB, "
          f"{len(names)} modules")


if __name__ == "__main__":
    main()
