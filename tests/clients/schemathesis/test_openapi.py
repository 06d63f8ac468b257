#!/usr/bin/env python3
"""Requests made from /openapi.json, good ones and bad ones, against the real binary on the counting
model: no answer with a status from 500 on other than 503, and none whose status, content type or body
the document does not describe.

    test_openapi.py --graft BINARY [--examples N] [--junit FILE]
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_schema_conformance")
LIMIT_S = 300
MAX_GROWTH_BYTES = 200 << 20  # of the server's memory, once it is warm


def run_schemathesis(server, args):
    command = [pathlib.Path(sys.executable).with_name("schemathesis"), "run", server.url + "/openapi.json",
               "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing",
               "--max-examples", str(args.examples), "--seed", "1", "--workers", "1", "--no-shrink",
               "--request-timeout", "30", "--suppress-health-check", "all", "--warnings", "off"]
    if args.junit:
        command += ["--report", "junit", "--report-junit-path", pathlib.Path(args.junit).resolve()]
    # It leaves a folder with what failed where it runs.
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, cwd=folder, timeout=LIMIT_S, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graft", required=True)
    parser.add_argument("--examples", type=int, default=15, help="requests per operation while fuzzing")
    parser.add_argument("--junit")
    args = parser.parse_args()
    # A line per request would hide what was found.
    server = graft_process.GraftProcess(
        args.graft, graft_process.COUNTING_MODEL, "--ctx", 512, "--threads", 1, "--log-level", "warning",
        *graft_process.module_options(graft_process.COUNTING_ADAPTERS, "step2"))
    before = server.memory_bytes()
    found = run_schemathesis(server, args)
    healthy = server.is_healthy()
    growth = server.memory_bytes() - before if healthy else 0
    status = server.stop()
    print(f"healthy {healthy}, memory grew by {growth >> 20} MiB, server stopped with status {status}")
    sys.exit(0 if found == 0 and healthy and growth < MAX_GROWTH_BYTES and status == 0 else 1)


if __name__ == "__main__":
    main()
