#!/usr/bin/env python3
"""What streams notice of what happens beside them: one server, rounds in turn with and without it.

  scrapes    20 scrapes of /metrics a second
  idle       256 idle keep-alive connections
  loads      an adapter loaded every second (needs --adapters)
  long       a prompt of 2,000 tokens arrives while all streams decode
  schema     one stream more, whose answer follows a JSON schema; in turn with one without a schema
  adapters   each stream has another adapter; in turn with the base (needs --adapters)
  queued     1,000 requests wait for admission; in turn with one more stream that runs

Prints for each: tokens per second (with over without) and, while all streams decode, the 99th
percentile of the gaps between tokens (with over without, and over the median gap without); medians
over the rounds. For `long` also the time that the two take apart over the time that they take
together. Standard library only.

usage: beside_bench.py MODEL.gguf [--only NAME...] [--adapters DIR...] [--graft PATH]
                       [--streams 8] [--tokens 160] [--rounds 7] [--threads 2]
                       [--module-precision f16] [--delay 2.5]
"""

import contextlib
import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from serve_bench import Server, common_arguments, free_port

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "tags"],
          "properties": {"name": {"type": "string"},
                         "tags": {"type": "array", "items": {"type": "string"}, "minItems": 400}}}


class Repeated(threading.Thread):
    """Does `work` at a fixed interval until the end of a with block."""

    def __init__(self, interval_s, work):
        super().__init__()
        self.interval_s, self.work, self.stopped = interval_s, work, threading.Event()
        self.n_done, self.error = 0, None

    def run(self):
        due = time.monotonic()
        while not self.stopped.wait(max(0, due - time.monotonic())):
            try:
                self.work()
            except Exception as error:  # shown at the end; a thread's own would be lost
                self.error = error
                return
            self.n_done += 1
            due += self.interval_s

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.join()
        if self.error:
            sys.exit(f"beside the streams: {self.error}")


def request(port, method, path, body=None, timeout=300):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {text[:200]!r}")
        return text


class Bench:
    def __init__(self, options, port, monitor, loadable):
        self.options, self.port, self.monitor, self.loadable = options, port, monitor, loadable
        self.seed = 0

    def streams(self, models=("base",), streams=None):
        self.seed += 1
        options = self.options
        command = [options.graft, "bench", "serve", f"http://127.0.0.1:{self.port}", "--json",
                   "--streams", str(streams or options.streams), "--prompt-unit", "tokens",
                   "--vocab", "40000", "--prompt-length", "64", "-n", str(options.tokens),
                   "--seed", str(self.seed)]
        for model in models:
            command += ["-m", model]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            sys.exit(result.stdout + result.stderr)
        return json.loads(result.stdout)

    # Each side is a pair of functions: without, with.

    def scrapes(self):
        def beside():
            with Repeated(0.05, lambda: request(self.monitor, "GET", "/metrics")):
                return self.streams()
        return self.streams, beside

    def idle(self):
        def beside():
            held = [http.client.HTTPConnection("127.0.0.1", self.port) for _ in range(256)]
            for connection in held:
                connection.request("GET", "/version")
                connection.getresponse().read()
            result = self.streams()
            for connection in held:
                connection.close()
            return result
        return self.streams, beside

    def loads(self):
        def load():
            self.seed += 1
            request(self.port, "POST", "/v1/load_lora_adapter", {
                "lora_name": "loaded", "load_inplace": True,
                "lora_path": self.loadable[self.seed % len(self.loadable)]})

        def beside():
            with Repeated(1, load):
                return self.streams()
        return self.streams, beside

    def long(self):
        dice = random.Random(7)

        def ask():
            begin = time.monotonic()
            request(self.port, "POST", "/v1/completions", {
                "prompt": [dice.randrange(100, 40000) for _ in range(2000)], "max_tokens": 1,
                "temperature": 0})
            return time.monotonic() - begin

        def without():
            long_s = ask()
            result = self.streams()
            result["apart_s"] = long_s + result["seconds"]
            return result

        def beside():
            late = threading.Timer(self.options.delay, ask)
            begin = time.monotonic()
            late.start()
            result = self.streams()
            late.join()
            result["together_s"] = time.monotonic() - begin
            return result
        return without, beside

    def schema(self):
        def one_more(fields):
            def side():
                body = {"prompt": "List:", "max_tokens": 4 * self.options.tokens, "temperature": 0,
                        "ignore_eos": True} | fields
                ended = threading.Event()

                def keep_asking():
                    while not ended.is_set():
                        request(self.port, "POST", "/v1/completions", body)
                other = threading.Thread(target=keep_asking)
                other.start()
                result = self.streams(streams=self.options.streams - 1)
                ended.set()
                other.join()
                return result
            return side
        return one_more({}), one_more({"structured_outputs": {"json": SCHEMA}})

    def adapters(self):
        names = [f"m{i}" for i in range(len(self.options.adapters))]
        return self.streams, lambda: self.streams(names)

    def queued(self):
        """Both sides run one more stream; behind it wait no or 999 more requests."""
        dice = random.Random(11)

        def side(n_requests):
            def run():
                bodies = [{"prompt": [[dice.randrange(100, 40000) for _ in range(8)]
                                      for _ in range(n)],
                           "max_tokens": 8 * self.options.tokens, "temperature": 0,
                           "ignore_eos": True, "stream": True}
                          for n in n_requests]
                held = []

                def ask():
                    for body in bodies:
                        connection = http.client.HTTPConnection("127.0.0.1", self.port)
                        connection.request("POST", "/v1/completions", json.dumps(body),
                                           {"content-type": "application/json"})
                        held.append(connection)
                late = threading.Timer(self.options.delay, ask)
                late.start()
                result = self.streams()
                late.join()
                for connection in held:
                    connection.close()  # gone: the server cancels what it asked for
                return result
            return run
        return side([1]), side([1] + [111] * 9)

    def run(self, name):
        without, beside = getattr(self, name)()
        pairs = []
        for number in range(self.options.rounds + 1):
            pair = (without(), beside()) if number % 2 else (beside(), without())[::-1]
            if number > 0:  # the first pair warms up
                pairs.append(pair)

        def median(value):
            return statistics.median(value(a, b) for a, b in pairs)
        gap = "all_decode_inter_token_ms"
        rate = median(lambda a, b: b["tokens_per_second"] / a["tokens_per_second"])
        p99 = median(lambda a, b: b[gap]["p99"] / a[gap]["p99"])
        over_step = median(lambda a, b: b[gap]["p99"] / a[gap]["p50"])
        quiet = median(lambda a, _: a[gap]["p50"])
        print(f"| {name} | {rate:.3f} | {quiet:.1f} | {p99:.2f} | {over_step:.2f} |", flush=True)
        if name == "long":
            ratio = median(lambda a, b: a["apart_s"] / b["together_s"])
            print(f"\nlong: {ratio:.2f} = the time of the two apart over their time together\n")


def main():
    names = ["scrapes", "idle", "schema", "long", "loads", "adapters", "queued"]
    parser = common_arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--adapters", nargs="*", default=[])
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--module-precision", default="f16")
    parser.add_argument("--delay", type=float, default=2.5,
                        help="seconds after which the long prompt comes: all streams decode by then")
    options = parser.parse_args()
    if not options.adapters:
        options.only = [name for name in options.only if name not in ("loads", "adapters")]

    monitor = free_port()
    with tempfile.TemporaryDirectory() as folder:
        for path in options.adapters:
            shutil.copytree(path, os.path.join(folder, os.path.basename(path)))
        server = Server("graft", [
            options.graft, "serve", options.model, "--max-seqs", str(options.streams + 1), "--ctx",
            "8192", "--threads", str(options.threads), "--metrics-port", str(monitor),
            "--modules-dir", folder, "--module-precision", options.module_precision]
            + [flag for i, path in enumerate(options.adapters)
               for flag in ("--module", f"m{i}={path}")])
        try:
            bench = Bench(options, server.port, monitor, sorted(os.listdir(folder)))
            print(f"{options.streams} streams, {options.tokens} tokens out, with over without\n")
            print("| beside them | tokens per second | quiet gap ms | p99 gap | p99 gap over quiet "
                  "median |\n|---|---|---|---|---|")
            for name in options.only:
                bench.run(name)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
