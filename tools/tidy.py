#!/usr/bin/env python3
"""Runs clang-tidy over the sources of src/ (tests apart), one process per core.

    tools/tidy.py BUILD_DIR [FILE...]

BUILD_DIR holds compile_commands.json (preset `tidy`). A file that was clean is skipped as long as
its preprocessed text, its flags, .clang-tidy and clang-tidy are the same; the marks are kept in
$GRAFT_CACHE/tidy (default ~/.cache/graft/tidy).
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKS = pathlib.Path(os.environ.get("GRAFT_CACHE") or pathlib.Path.home() / ".cache/graft") / "tidy"


def wanted_entries(build, names):
    entries = json.loads((build / "compile_commands.json").read_text())
    wanted = {}
    for entry in entries:
        path = pathlib.Path(entry["file"])
        ours = path.is_relative_to(ROOT / "src") and not path.name.endswith("_test.cpp")
        if ours and (not names or path.relative_to(ROOT).as_posix() in names):
            wanted[path] = entry
    return sorted(wanted.items())


def without_output(entry):
    """The compile command up to its output options, without ccache."""
    words = shlex.split(entry["command"])
    if words[0].endswith("ccache"):
        words = words[1:]
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word in ("-o", "-MF", "-MT"):
            skip = 1
        elif word not in ("-c", "-MD"):
            kept.append(word)
    return kept


def fingerprint(entry, shared):
    """Hash of everything clang-tidy would see, or None when the file does not preprocess."""
    command = without_output(entry)
    # -C keeps comments: NOLINT is one.
    result = subprocess.run(command + ["-E", "-C"], cwd=entry["directory"], capture_output=True)
    if result.returncode != 0:
        return None
    seen = shared + " ".join(command).encode() + result.stdout
    # Another checkout of the same text is the same.
    return hashlib.sha256(seen.replace(str(ROOT).encode(), b"")).hexdigest()


def check(item, build, shared):
    """Returns clang-tidy's findings; empty for a clean file."""
    path, entry = item
    mark = fingerprint(entry, shared)
    if mark and (MARKS / mark).exists():
        return ""
    result = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), str(path)],
                            capture_output=True, text=True)
    if result.returncode != 0:
        noise = re.compile(r"^(\d+ warnings?.* generated\.|Suppressed .*|Use -header-filter.*)\n", re.M)
        return noise.sub("", result.stdout + result.stderr)
    if mark:
        (MARKS / mark).touch()
    return ""


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    items = wanted_entries(build, set(sys.argv[2:]))
    if not items:
        sys.exit(f"tidy: no file of src/ in {build}/compile_commands.json")
    MARKS.mkdir(parents=True, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    shared = version + (ROOT / ".clang-tidy").read_bytes()

    n_bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check, item, build, shared) for item in items]
        for job in concurrent.futures.as_completed(jobs):
            findings = job.result()
            if findings:
                n_bad += 1
                print(findings.strip(), flush=True)
    print(f"tidy: {len(items)} files, {n_bad} with findings")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
