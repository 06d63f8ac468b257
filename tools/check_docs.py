#!/usr/bin/env python3
"""Checks that the Markdown files tell the truth.

- Every relative link and every `path` in backquotes that starts with a folder of ours exists.
- Every fenced block that is opened with ```sh run``` is executed after the build: the blocks of one
  file in order, in one shell, at the root of the repository. A command that fails fails the check.
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:src|tests|fuzz|bench|examples|scripts|tools|docs|cmake|\.ci)/[\w./-]+)`")
BLOCK = re.compile(r"^```sh run\n(.*?)^```$", re.M | re.S)
LIMIT_S = 600


def markdown_files():
    output = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in output.splitlines() if (ROOT / line).exists()]


def missing_paths(document, text):
    for target in LINK.findall(text):
        if "://" not in target and not (document.parent / target).exists():
            yield f"{document.relative_to(ROOT)}: link to {target}, which does not exist"
    for target in PATH.findall(text):
        if not (ROOT / target).exists():
            yield f"{document.relative_to(ROOT)}: names {target}, which does not exist"


def run_blocks(document, blocks):
    """Runs the blocks; returns what went wrong or None."""
    script = "set -euo pipefail\n" + "\n".join(blocks) + "\n"
    # A session of its own: what the blocks leave running is ended with them. A file takes the output,
    # because a pipe would stay open as long as such a process lives.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        shell = subprocess.Popen(["bash", "-c", script], cwd=ROOT, start_new_session=True,
                                 stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = shell.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            status = None
        subprocess.run(["kill", "-KILL", "--", f"-{shell.pid}"], stderr=subprocess.DEVNULL, check=False)
        shell.wait()
        output.seek(0)
        text = output.read()
    name = document.relative_to(ROOT)
    if status is None:
        return f"{name}: its commands did not end within {LIMIT_S} s:\n{text}"
    if status == 0:
        return None
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"{name}: its commands ended with {how}:\n{text}"


def main():
    faults, n_blocks = [], 0
    documents = markdown_files()
    for document in documents:
        text = document.read_text(encoding="utf-8")
        faults += missing_paths(document, text)
        blocks = BLOCK.findall(text)
        n_blocks += len(blocks)
        if blocks:
            fault = run_blocks(document, blocks)
            faults += [fault] if fault else []
    for fault in faults:
        print(fault)
    print(f"check_docs: {len(documents)} files, {n_blocks} blocks run, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
