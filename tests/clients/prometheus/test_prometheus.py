#!/usr/bin/env python3
"""A real Prometheus scrapes the real binary, and promtool reads our own families.

    test_prometheus.py --graft BINARY --prometheus FOLDER [--junit FILE]

FOLDER holds the programs prometheus and promtool (scripts/test-clients unpacks Debian's package).
The server runs on the counting model of tests/synthetic. Standard library only.
"""

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402

LIMIT_S = 60
# One series each: a router that scrapes takes one and ignores the rest.
PROTOCOL = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
            "vllm:lora_requests_info", "vllm:cache_config_info"]
N_REQUESTS = 12
ARGS = None  # set by main()


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
        monitor, own = free_port(), free_port()
        cls.metrics_url, cls.url = f"http://127.0.0.1:{monitor}", f"http://127.0.0.1:{own}"
        cls.graft = graft_process.GraftProcess(
            ARGS.graft, graft_process.COUNTING_MODEL, "--threads", 1, "--metrics-port", monitor,
            "--old-vllm-metrics",
            *graft_process.module_options(graft_process.COUNTING_ADAPTERS, "step2", "upper"))
        cls.addClassCleanup(cls.graft.process.kill)  # where the rest of this fails
        config = pathlib.Path(cls.folder.name) / "prometheus.yml"
        config.write_text("global: {scrape_interval: 500ms, scrape_timeout: 400ms}\n"
                          "scrape_configs:\n- job_name: graft\n"
                          f"  static_configs: [{{targets: ['127.0.0.1:{monitor}']}}]\n")
        for i in range(N_REQUESTS):
            fetch(cls.graft.url + "/v1/completions",
                  {"model": ["base", "step2", "upper"][i % 3], "prompt": "a", "temperature": 0})
        cls.prometheus = subprocess.Popen(
            [f"{ARGS.prometheus}/prometheus", f"--config.file={config}",
             f"--storage.tsdb.path={cls.folder.name}/data", f"--web.listen-address=127.0.0.1:{own}",
             "--log.level=warn"])
        cls.addClassCleanup(cls.prometheus.kill)
        wait_for("a scrape", lambda: cls.query("up == 1"))

    @classmethod
    def tearDownClass(cls):
        cls.prometheus.send_signal(signal.SIGTERM)
        cls.prometheus.wait(timeout=LIMIT_S)
        cls.folder.cleanup()
        if (status := cls.graft.stop()) != 0:
            raise AssertionError(f"the server stopped with status {status}")

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
        checked = subprocess.run([f"{ARGS.prometheus}/promtool", "check", "metrics"],
                                 input=own, capture_output=True, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))


def main():
    global ARGS
    ARGS = graft_process.parse_arguments("prometheus")
    sys.exit(0 if graft_process.run_tests("prometheus", ARGS.junit) else 1)


if __name__ == "__main__":
    main()
