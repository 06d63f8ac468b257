#!/usr/bin/env python3
"""A real Prometheus scrapes the real binary, and promtool reads our own families.

    test_prometheus.py --graft BINARY --prometheus FOLDER [--junit FILE]

FOLDER holds the programs prometheus and promtool (scripts/test-clients unpacks Debian's package).
The server runs on the counting model of tests/synthetic. Standard library only.
"""

import argparse
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT_S = 60
# One series each: a router that scrapes takes one and ignores the rest.
PROTOCOL = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
            "vllm:lora_requests_info", "vllm:cache_config_info"]
N_REQUESTS = 12
OPTIONS = None  # set by main()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url, body=None):
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read().decode()


def wait_for(what, condition):
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {LIMIT_S} s")


class PrometheusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        port, monitor, own = free_port(), free_port(), free_port()
        cls.graft_url, cls.metrics_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{monitor}"
        cls.url = f"http://127.0.0.1:{own}"
        adapters = ROOT / "tests/synthetic/adapters"
        cls.graft = subprocess.Popen(
            [OPTIONS.graft, "serve", str(ROOT / "tests/synthetic/counting.gguf"), "--threads", "1",
             "--port", str(port), "--metrics-port", str(monitor), "--old-vllm-metrics",
             "--module", f"step2={adapters / 'step2'}", "--module", f"upper={adapters / 'upper'}"],
            stdout=subprocess.DEVNULL)
        cls.prometheus = None
        config = pathlib.Path(cls.folder.name) / "prometheus.yml"
        config.write_text("global: {scrape_interval: 500ms, scrape_timeout: 400ms}\n"
                          "scrape_configs:\n- job_name: graft\n"
                          f"  static_configs: [{{targets: ['127.0.0.1:{monitor}']}}]\n")
        wait_for("the server", lambda: fetch(cls.graft_url + "/health"))
        for i in range(N_REQUESTS):
            fetch(cls.graft_url + "/v1/completions",
                  {"model": ["base", "step2", "upper"][i % 3], "prompt": "a", "temperature": 0})
        cls.prometheus = subprocess.Popen(
            [str(OPTIONS.prometheus / "prometheus"), f"--config.file={config}",
             f"--storage.tsdb.path={cls.folder.name}/data", f"--web.listen-address=127.0.0.1:{own}",
             "--log.level=warn"])
        wait_for("a scrape", lambda: cls.query("up == 1"))

    @classmethod
    def tearDownClass(cls):
        for process in (cls.prometheus, cls.graft):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=LIMIT_S)
        cls.folder.cleanup()

    @classmethod
    def query(cls, text):
        url = cls.url + "/api/v1/query?" + urllib.parse.urlencode({"query": text})
        return json.loads(fetch(url))["data"]["result"]

    def test_the_protocols_families_have_one_series_each(self):
        for name in PROTOCOL:
            self.assertEqual(len(self.query(name)), 1, name)
        labels = self.query("vllm:lora_requests_info")[0]["metric"]
        self.assertEqual(labels["running_lora_adapters"], "step2,upper")
        self.assertGreaterEqual(int(labels["max_lora"]), 2)
        stamp = float(self.query("vllm:lora_requests_info")[0]["value"][1])
        self.assertLess(abs(time.time() - stamp), 60)
        geometry = self.query("vllm:cache_config_info")[0]["metric"]
        self.assertGreater(int(geometry["block_size"]) * int(geometry["num_gpu_blocks"]), 0)

    def test_histograms_answer_quantiles(self):
        for name in ("vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds",
                     "vllm:inter_token_latency_seconds", "graft_step_seconds"):
            found = self.query(f"histogram_quantile(0.9, {name}_bucket)")
            self.assertEqual(len(found), 1, name)
            self.assertGreater(float(found[0]["value"][1]), 0, name)
        count = self.query("vllm:e2e_request_latency_seconds_count")[0]["value"][1]
        self.assertEqual(int(count), N_REQUESTS)

    def test_requests_are_counted_by_module(self):
        found = self.query("sum by (module) (graft_module_requests_total)")
        self.assertEqual({one["metric"]["module"]: int(one["value"][1]) for one in found},
                         {name: N_REQUESTS // 3 for name in ("base", "step2", "upper")})
        self.assertEqual(len(self.query("graft_module_resident_bytes > 0")), 2)

    def test_nothing_is_dropped_by_the_scraper(self):
        text = fetch(self.metrics_url + "/metrics")
        n_lines = sum(1 for line in text.splitlines() if not line.startswith("#"))
        self.assertEqual(int(self.query("scrape_samples_scraped")[0]["value"][1]), n_lines)

    def test_promtool_finds_no_fault_in_our_families(self):
        text = fetch(self.metrics_url + "/metrics")
        own = "".join(line + "\n" for line in text.splitlines()
                      if not re.match(r"(# (HELP|TYPE) )?vllm:", line))
        self.assertNotIn("vllm:", own)
        checked = subprocess.run([str(OPTIONS.prometheus / "promtool"), "check", "metrics"],
                                 input=own, capture_output=True, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))


def write_junit(path, result):
    failed = {test.id(): text for test, text in result.failures + result.errors}
    suite = ElementTree.Element("testsuite", name="prometheus")
    for name in unittest.defaultTestLoader.getTestCaseNames(PrometheusTest):
        case = ElementTree.SubElement(suite, "testcase", name=name)
        for test, text in failed.items():
            if test.endswith("." + name) or "setUpClass" in test:
                ElementTree.SubElement(case, "failure").text = text
    ElementTree.ElementTree(suite).write(path)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graft", required=True)
    parser.add_argument("--prometheus", required=True, type=pathlib.Path)
    parser.add_argument("--junit")
    OPTIONS = parser.parse_args()
    result = unittest.TextTestRunner(verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(PrometheusTest))
    if OPTIONS.junit:
        write_junit(OPTIONS.junit, result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
