#!/usr/bin/env python3
"""`guidellm benchmark`, unchanged, against the real binary on the counting model: few requests of our own,
one at a time and several at once, and what its report says of them.

    test_guidellm.py --graft BINARY [--junit FILE]

Prompts come from a file, so that no tokenizer is needed: tokens are those that the server reports.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402

SERVER = None  # the process, set by main()
LIMIT_S = 120
N_REQUESTS = 8
N_TOKENS = 24
GREEDY = json.dumps({"extra_body": {"text_completions": {"temperature": 0}}})
# Nothing comes from a hub; one process sends so few requests easily, and more take seconds to start.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
               "GUIDELLM__MAX_WORKER_PROCESSES": "1"}


def benchmark(model, *options):
    """The one benchmark of the report that guidellm writes."""
    with tempfile.TemporaryDirectory() as folder:
        prompts = pathlib.Path(folder) / "prompts.jsonl"
        lines = [{"prompt": "x" * i + "5", "output_tokens_count": N_TOKENS} for i in range(1, N_REQUESTS + 1)]
        prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
        report = pathlib.Path(folder) / "report.json"
        command = [pathlib.Path(sys.executable).with_name("guidellm"), "benchmark", "run", "--target", SERVER.url,
                   "--model", model, "--data", prompts, "--max-requests", str(N_REQUESTS), "--output-path", report,
                   "--backend-args", GREEDY, "--disable-progress", *options]
        ran = subprocess.run([str(word) for word in command], env=os.environ | ENVIRONMENT | {"HF_HOME": folder},
                             timeout=LIMIT_S, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise AssertionError(f"guidellm failed: {(ran.stdout + ran.stderr)[-2000:]}")
        found, = json.loads(report.read_text())["benchmarks"]
        return found


class Benchmark(unittest.TestCase):
    def check(self, found):
        requests = found["requests"]
        self.assertEqual((len(requests["errored"]), len(requests["incomplete"])), (0, 0))
        self.assertEqual(len(requests["successful"]), N_REQUESTS)
        for request in requests["successful"]:
            self.assertEqual(request["output_tokens"], N_TOKENS)
            self.assertGreater(request["prompt_tokens"], 1)
            self.assertGreaterEqual(request["time_to_first_token_ms"], 0)
        self.assertGreater(found["metrics"]["output_tokens_per_second"]["successful"]["mean"], 0)

    def test_completions_one_at_a_time(self):
        found = benchmark("base", "--rate-type", "synchronous")
        self.check(found)
        self.assertEqual({request["output"] for request in found["requests"]["successful"]},
                         {("6789012345" * 3)[:N_TOKENS]})

    def test_a_module_several_at_once(self):
        found = benchmark("step2", "--rate-type", "concurrent", "--rate", "4")
        self.check(found)
        self.assertEqual({request["output"] for request in found["requests"]["successful"]},
                         {("79135" * 5)[:N_TOKENS]})


def main():
    global SERVER
    args = graft_process.parse_arguments()
    SERVER = graft_process.GraftProcess(
        args.graft, graft_process.COUNTING_MODEL, "--ctx", 4096, "--threads", 1,
        *graft_process.module_options(graft_process.COUNTING_ADAPTERS, "step2"))
    graft_process.run_against(SERVER, "guidellm", args.junit)


if __name__ == "__main__":
    main()
