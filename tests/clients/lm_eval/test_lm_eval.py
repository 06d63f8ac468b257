#!/usr/bin/env python3
"""lm-eval's local-completions model, unchanged, against the real binary: loglikelihoods of a task of
our own on the counting model, whose answers are known (tests/synthetic/README.md).

    test_lm_eval.py --graft BINARY [--junit FILE]
"""

import json
import os
import pathlib
import sys
import tempfile
import unittest

os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402
from lm_eval import simple_evaluate  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

SERVER = None  # the process, set by main()

# What the base goes on with comes first, what the module step2 goes on with second.
ITEMS = [("abc", ["def", "egi", "xyz"]), ("k", ["lmn", "moq", "abc"]), ("a12", ["345", "468", "999"]),
         ("w", ["xyz", "y", "v"]), ("hello q", ["rst", "suw", "q"]), ("b7", ["890", "913", "777"])]

TASK = """
task: counting
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


def model_args(model, **more):
    return {"model": model, "base_url": SERVER.url + "/v1/completions", "max_length": 256,
            "tokenizer_backend": "auto"} | more


def accuracy(model, label, batch_size):
    """Of a task in which choice `label` counts as right."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "counting.jsonl"
        data.write_text("".join(json.dumps({"context": context, "choices": choices, "label": label}) + "\n"
                                for context, choices in ITEMS))
        (pathlib.Path(folder) / "counting.yaml").write_text(TASK.format(file=data))
        os.environ["HF_DATASETS_CACHE"] = folder
        results = simple_evaluate(
            model="local-completions", model_args=model_args(model), tasks=["counting"], batch_size=batch_size,
            task_manager=TaskManager(include_path=folder, include_defaults=False), bootstrap_iters=0)
    return results["results"]["counting"]["acc,none"]


class LmEval(unittest.TestCase):
    def test_the_base_goes_on_counting(self):
        self.assertEqual(accuracy("base", 0, batch_size=1), 1)
        self.assertEqual(accuracy("base", 1, batch_size=1), 0)

    def test_a_module_changes_what_is_likely(self):
        self.assertEqual(accuracy("step2", 1, batch_size=4), 1)

    def test_loglikelihoods_are_those_of_single_requests_and_greedy_is_told(self):
        alone = LocalCompletionsAPI(**model_args("base", batch_size=1))
        batched = LocalCompletionsAPI(**model_args("base", batch_size=5))
        self.assertEqual(alone.tokenizer_backend, "remote")
        pairs = [(context, choice) for context, choices in ITEMS for choice in choices]
        requests = [(pair, alone.tok_encode(pair[0]), alone.tok_encode(pair[1])) for pair in pairs]
        expected = alone._loglikelihood_tokens(requests, disable_tqdm=True)
        self.assertEqual(batched._loglikelihood_tokens(requests, disable_tqdm=True), expected)
        for (context, choice), (loglikelihood, is_greedy) in zip(pairs, expected):
            right = next(choices for c, choices in ITEMS if c == context)[0]
            self.assertEqual(is_greedy, choice == right, (context, choice))
            if is_greedy:
                self.assertGreater(loglikelihood, -1)
            else:
                self.assertLess(loglikelihood, -2)


def main():
    global SERVER
    args = graft_process.parse_arguments()
    SERVER = graft_process.GraftProcess(
        args.graft, graft_process.COUNTING_MODEL, "--ctx", 2048, "--threads", 1, "--log-level", "warning",
        *graft_process.module_options(graft_process.COUNTING_ADAPTERS, "step2"))
    graft_process.run_against(SERVER, "lm_eval", args.junit)


if __name__ == "__main__":
    main()
