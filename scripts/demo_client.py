#!/usr/bin/env python3
"""Starts `graft serve`, sends it four requests alone and then at once, and prints what it saw.

    demo_client.py GRAFT MODEL.gguf --module NAME=PATH --module NAME=PATH

Needs only Python's standard library. Ends with status 0 if every answer given in company was, byte
for byte, the answer given alone, and the server stopped cleanly.
"""

import argparse
import concurrent.futures
import json
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

QUESTION = "What is the moon?"
MAX_TOKENS = 64
START_LIMIT_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(binary, model, modules, port):
    command = [binary, "serve", model, "--host", "127.0.0.1", "--port", str(port)]
    for module in modules:
        command += ["--module", module]
    print("$", " ".join(command), flush=True)
    return subprocess.Popen(command)


def wait_until_healthy(server, url):
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode} before it was ready")
        try:
            with urllib.request.urlopen(url + "/health", timeout=2) as response:
                if response.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"the server was not ready after {START_LIMIT_S} s")


def ask(url, modules, question=QUESTION, max_tokens=MAX_TOKENS):
    """One greedy chat completion: (text, x-graft-modules, generated tokens)."""
    body = {
        "model": "base",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    if modules:
        body["modules"] = modules
    request = urllib.request.Request(
        url + "/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            answer = json.load(response)
            header = response.headers.get("x-graft-modules", "")
    except urllib.error.HTTPError as error:
        sys.exit(f"HTTP {error.code}: {error.read().decode(errors='replace')}")
    return answer["choices"][0]["message"]["content"], header, answer["usage"]["completion_tokens"]


def resident_mib(pid):
    """(all resident memory, the part that is not a mapped file) in MiB."""
    fields = dict(
        line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return tuple(int(fields[key].split()[0]) / 1024 for key in ("VmRSS", "RssAnon"))


def timed(run):
    start = time.monotonic()
    result = run()
    return result, time.monotonic() - start


def run_demo(server, url, names):
    first, second = names[:2]
    requests = {
        "base": [],
        first: [{"name": first}],
        second: [{"name": second}],
        f"{first} 0.6 + {second} 0.7": [
            {"name": first, "scale": 0.6},
            {"name": second, "scale": 0.7},
        ],
    }
    ask(url, [], max_tokens=4)  # the first step pays for page faults

    alone, alone_s = timed(lambda: [ask(url, modules) for modules in requests.values()])
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        together, together_s = timed(lambda: list(pool.map(lambda m: ask(url, m), requests.values())))

    print(f"\nFour requests at once: {QUESTION}")
    for title, (text, header, n_tokens) in zip(requests, together):
        print(f"\n[{title}]  {n_tokens} tokens, x-graft-modules: {header or '(none)'}\n{text.strip()}")

    n_tokens = sum(answer[2] for answer in together)
    all_mib, own_mib = resident_mib(server.pid)
    same = alone == together
    print(f"\ntokens per second: one after another {sum(a[2] for a in alone) / alone_s:.0f},"
          f" together {n_tokens / together_s:.0f}")
    print(f"memory of the server: {all_mib:.0f} MiB resident, {own_mib:.0f} MiB of it not the"
          " mapped model file")
    print("answers alone and together: " + ("identical, byte for byte" if same else "DIFFERENT"))
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graft")
    parser.add_argument("model")
    parser.add_argument("--module", action="append", default=[], metavar="NAME=PATH")
    args = parser.parse_args()
    if len(args.module) < 2:
        sys.exit("the demo needs two modules: --module NAME=PATH --module NAME=PATH")

    port = free_port()
    server = start_server(args.graft, args.model, args.module, port)
    try:
        wait_until_healthy(server, f"http://127.0.0.1:{port}")
        names = [module.split("=", 1)[0] for module in args.module]
        same = run_demo(server, f"http://127.0.0.1:{port}", names)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            status = server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            sys.exit("the server did not stop within 30 s of SIGTERM")
    print(f"server stopped with status {status}")
    sys.exit(0 if same and status == 0 else 1)


if __name__ == "__main__":
    main()
