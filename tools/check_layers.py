#!/usr/bin/env python3
"""Checks who includes whom in src/ and fails on a wrong arrow.

1. Folders: a file may include its own folder and the folders below it in tools/layers.txt.
   src/main.cpp alone may include every folder.
2. Third parties stay behind their fence (FENCES): each may be included only from some folders.
3. ggml's private headers are included by exactly one file.

Prints one line per fault: path:line: what is wrong and what is allowed.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')

# Headers (as written in the include) and the files that may include them, relative to src/.
FENCES = [
    ("Boost", r"boost/", r"http/"),
    ("nlohmann/json", r"nlohmann/", r"api/|cli/|modules/formats/"),
    ("CLI11", r"CLI/", r"cli/|main\.cpp$"),
    ("spdlog", r"spdlog/|fmt/", r"base/"),
    ("OpenSSL", r"openssl/", r"base/|http/"),
    ("prometheus-cpp", r"prometheus/", r"metrics/"),
    ("Highway", r"hwy/", r"engine/|grafting/|modules/"),
    ("llama.cpp", r"(llama|ggml|gguf)[\w-]*\.h$", r"engine/|grafting/|text/|modules/formats/gguf"),
]
PRIVATE_GGML = re.compile(r"ggml(-\w+)*-impl\.h$")


def read_layers():
    lines = (ROOT / "tools" / "layers.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def includes(path):
    """Yields (line number, "<" or '"', header)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def layer_fault(layers, owner, bracket, header):
    """What is wrong with `header` in a file of folder `owner` ("" = src/main.cpp), or None."""
    folder = header.split("/")[0] if "/" in header else ""
    if folder not in layers:
        if bracket == '"' and folder and (SOURCE / header).exists():
            return f"folder '{folder}' is not in tools/layers.txt"
        return None
    if bracket != '"':
        return f'our own headers are included as "{header}"'
    if not (SOURCE / header).exists():
        return f"src/{header} does not exist"
    if owner and layers.index(folder) < layers.index(owner):
        allowed = ", ".join(layers[layers.index(owner):])
        return f"{owner}/ may not include {folder}/ (allowed: {allowed})"
    return None


def fence_fault(relative, header):
    for name, pattern, allowed in FENCES:
        if re.match(pattern, header) and not re.match(allowed, relative):
            return f"{name} ({header}) is allowed only in {allowed.replace('|', ' ')}"
    return None


def main():
    layers = read_layers()
    faults, private_users, n_includes = [], {}, 0
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        relative = path.relative_to(SOURCE).as_posix()
        owner = relative.split("/")[0] if "/" in relative else ""
        if (owner and owner not in layers) or (not owner and relative != "main.cpp"):
            faults.append(f"src/{relative}:1: is in no folder of tools/layers.txt")
            continue
        for line, bracket, header in includes(path):
            n_includes += 1
            for fault in (layer_fault(layers, owner, bracket, header), fence_fault(relative, header)):
                if fault:
                    faults.append(f"src/{relative}:{line}: {fault}")
            if PRIVATE_GGML.search(header):
                private_users.setdefault(relative, line)
    if len(private_users) > 1:
        for relative, line in private_users.items():
            faults.append(f"src/{relative}:{line}: ggml's private headers belong in one file only")

    for fault in faults:
        print(fault)
    print(f"check_layers: {n_includes} includes, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
