"""The graft process under test and a runner that writes a JUnit file; shared by the clients' tests."""

import argparse
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.request
import xml.etree.ElementTree as ElementTree

START_LIMIT_S = 120
ROOT = pathlib.Path(__file__).resolve().parents[2]
COUNTING_MODEL = ROOT / "tests/synthetic/counting.gguf"
COUNTING_ADAPTERS = ROOT / "tests/synthetic/adapters"


def module_options(folder, *names):
    """The options that load adapters of a folder under the names of theirs."""
    return [word for name in names for word in ("--module", f"{name}={pathlib.Path(folder) / name}")]


class GraftProcess:
    """`graft serve MODEL OPTIONS...` on a free port of the loopback interface."""

    def __init__(self, binary, model, *options):
        command = [str(binary), "serve", str(model), "--host", "127.0.0.1", "--port", "0"]
        self.process = subprocess.Popen(command + [str(option) for option in options],
                                        stdout=subprocess.PIPE, text=True)
        self.url = self._read_url()
        # What else it prints must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def _read_url(self):
        timer = threading.Timer(START_LIMIT_S, self.process.kill)
        timer.start()
        for line in self.process.stdout:
            found = re.match(r"ready: (https?://\S+)", line)
            if found:
                timer.cancel()
                return found.group(1)
        sys.exit("the server did not become ready")

    def is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=10) as response:
                return response.status == 200
        except OSError:
            return False

    def memory_bytes(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s*(\d+) kB", text).group(1)) * 1024

    def stop(self):
        """The exit status after SIGTERM, or None if it did not stop in time."""
        self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        try:
            return self.process.wait(timeout=deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None


class JUnitResult(unittest.TextTestResult):
    """Also remembers every test for a JUnit file."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.ran = []

    def stopTest(self, test):
        super().stopTest(test)
        self.ran.append(test)

    def write(self, path, suite_name):
        bad = {id(test): text for test, text in self.failures + self.errors}
        # A failing subtest makes its test fail.
        bad |= {id(getattr(test, "test_case", test)): text for test, text in self.failures + self.errors}
        # What fails before a class's first test is not a test, and has to be counted.
        cases = self.ran + [test for test, _ in self.errors if not isinstance(test, unittest.TestCase)]
        suite = ElementTree.Element("testsuite", name=suite_name, tests=str(len(cases)))
        for test in cases:
            kind, _, name = test.id().rpartition(".")
            case = ElementTree.SubElement(suite, "testcase", classname=kind.rpartition(".")[2], name=name)
            if id(test) in bad:
                ElementTree.SubElement(case, "failure", message=bad[id(test)].strip().splitlines()[-1])
        ElementTree.ElementTree(suite).write(path, encoding="utf-8")


def parse_arguments(*required):
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("graft", *required):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--junit")
    return parser.parse_args()


def run_tests(suite_name, junit):
    """Runs the tests of the script; whether all passed."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(verbosity=2, resultclass=JUnitResult).run(suite)
    if junit:
        result.write(junit, suite_name)
    return result.wasSuccessful()


def run_against(server, suite_name, junit):
    """Runs the tests of the script against a server of theirs, stops it and exits."""
    passed = False
    try:
        passed = run_tests(suite_name, junit)
    finally:
        status = server.stop()
    print(f"server stopped with status {status}")
    sys.exit(0 if passed and status == 0 else 1)
