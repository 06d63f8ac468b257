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
    # A session of its own: what the blocks leave running is ended with them.
    shell = subprocess.Popen(["bash", "-c", script], cwd=ROOT, start_new_session=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = shell.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        subprocess.run(["kill", "-KILL", "--", f"-{shell.pid}"], check=False)
        return f"{document.relative_to(ROOT)}: its commands did not end within {LIMIT_S} s"
    if shell.returncode == 0:
        return None
    how = (signal.Signals(-shell.returncode).name if shell.returncode < 0
           else f"status {shell.returncode}")
    return f"{document.relative_to(ROOT)}: its commands ended with {how}:\n{output}"


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
