#!/usr/bin/env bash
# Installs what building and testing MACO needs; says nothing where nothing is missing. May be run again at any time.
#
#   tools/setup.sh [--no-clang] [--no-python]
#
# Debian and Ubuntu packages are installed where this is root or sudo needs no password; elsewhere the missing ones are named and the status
# is 1. Python packages (for the Python package and its tests, PyTorch among them, for the comparison with NumPy, clang-format and
# clang-tidy, and NVRTC where there is no CUDA toolkit) go into .venv; without them the tests that need them are skipped.
#   --no-clang   without LLVM's and Clang's development files, which are installed where the distribution has version 22 (1 GB); ops `cuda`,
#                kernels of users (docs/cuda-kernels.md), need them, and are refused without
#   --no-python  leave .venv alone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

clang=true python=true
for option in "$@"; do
  case "$option" in
    --no-clang) clang=false ;;
    --no-python) python=false ;;
    *)
      sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
      if [[ "$option" == --help ]]; then exit 0; else exit 2; fi
      ;;
  esac
done

say() { printf 'setup: %s\n' "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }
any() { compgen -G "$1" >/dev/null; }
# Is the header found by the compiler?
has_header() { printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | g++ -E -x c++ - >/dev/null 2>&1; }
has_lit() { has lit || has llvm-lit || any '/usr/lib/llvm-*/bin/lit' || any '/usr/lib/llvm-*/build/utils/lit/lit.py'; }
has_filecheck() { has FileCheck || any '/usr/lib/llvm-*/bin/FileCheck'; }
can_make_venv() { python3 -c 'import venv, ensurepip' >/dev/null 2>&1; }

# --- packages of the distribution ----------------------------------------------------------------------------------------------

missing=()
need() { local package=$1; shift; "$@" || missing+=("$package"); }
need g++ has g++
need cmake has cmake
need ninja-build has ninja
need pkg-config has pkg-config
need libfmt-dev has_header fmt/core.h
need nlohmann-json3-dev has_header nlohmann/json.hpp
need libcli11-dev has_header CLI/CLI.hpp
has_header catch2/catch_all.hpp || need catch2 has_header catch2/catch.hpp
if ! has_lit || ! has_filecheck; then missing+=(llvm-tools); fi
if $python && [[ ! -x .venv/bin/python ]]; then need python3-venv can_make_venv; fi
optional=()
has ccache || optional+=(ccache)
if $clang; then  # what compiler/CMakeLists.txt looks for, and Clang's own headers, which it reads when it runs
  llvm=/usr/lib/llvm-22
  any "$llvm/include/clang/AST/ASTContext.h" || optional+=(libclang-22-dev)
  any "$llvm/lib/libclang-cpp.so" || optional+=(libclang-cpp22-dev)
  { any "$llvm/include/llvm/ADT" && any "$llvm/lib/libLLVM.so"; } || optional+=(llvm-22-dev)
  any "$llvm/lib/clang/22/include" || optional+=(libclang-common-22-dev)
fi

as_root=()
[[ $(id -u) == 0 ]] || as_root=(sudo -n)
can_install() { has apt-get && { [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null; }; }
known() { apt-cache show "$1" >/dev/null 2>&1; }
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

# llvm-tools stands for the newest llvm-N-tools there is.
resolve() {
  local package version
  for package in "${missing[@]}"; do
    if [[ $package == llvm-tools ]]; then
      for version in 22 21 20 19 18 17 16 15 14; do
        if known "llvm-$version-tools"; then package=llvm-$version-tools; break; fi
      done
    fi
    printf '%s\n' "$package"
  done
}

if ((${#missing[@]} + ${#optional[@]})) && can_install; then "${as_root[@]}" apt-get update -qq; fi
if ((${#missing[@]})); then
  if ! can_install; then
    say "these packages are missing, and installing them needs root: ${missing[*]/llvm-tools/llvm-22-tools (or another llvm-N-tools)}"
    exit 1
  fi
  mapfile -t missing < <(resolve)
  say "installing ${missing[*]}"
  install "${missing[@]}"
fi
if ((${#optional[@]})) && can_install; then
  found=()
  for package in "${optional[@]}"; do
    if known "$package"; then found+=("$package"); else say "no package $package here: going on without"; fi
  done
  if ((${#found[@]})); then
    say "installing ${found[*]}"
    install "${found[@]}" || say "${found[*]} could not be installed: going on without"
  fi
fi

# --- Python packages -----------------------------------------------------------------------------------------------------------

packages='.venv/lib/python3*/site-packages/nvidia'
has_nvrtc() {
  has nvcc || any '/usr/local/cuda*/lib64/libnvrtc.so*' || any '/usr/lib/*/libnvrtc.so*' || any "$packages/*/lib/libnvrtc.so*"
}
# Is every package of tools/requirements.txt there, in the version that it pins?
has_requirements() {
  .venv/bin/python - >/dev/null 2>&1 <<'EOF'
import importlib.metadata, re, sys
for line in open("tools/requirements.txt"):
    if found := re.match(r"([\w.-]+)(?:==(\S+))?", line):
        version = importlib.metadata.version(found[1])
        if found[2] not in (None, version):
            sys.exit(1)
EOF
}

wanted=()
if $python; then
  has_requirements || wanted+=(-r tools/requirements.txt)
  has_nvrtc || wanted+=(-r tools/requirements-cuda.txt)
fi
if ((${#wanted[@]})); then
  say "installing Python packages into .venv"
  if ! { [[ -x .venv/bin/python ]] || python3 -m venv .venv; } ||
    ! .venv/bin/python -m pip install -q --disable-pip-version-check --retries 1 --timeout 20 "${wanted[@]}"; then
    say "Python packages could not be installed: the tests that need them will be skipped"
  fi
fi

# PyTorch without its gigabytes of CUDA's libraries, which come from a toolkit: where there is none it can't be imported, and the tests that
# need it are skipped.
if $python && [[ -x .venv/bin/python ]] && ! .venv/bin/python -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
  say "installing PyTorch into .venv"
  .venv/bin/python -m pip install -q --disable-pip-version-check --retries 1 --timeout 20 --no-deps -r tools/requirements-torch.txt ||
    say "PyTorch could not be installed: the tests that need it will be skipped"
fi

# The last CUDA that compiles for sm_70, for a test; apart from the packages that the programs look into.
if $python && [[ -x .venv/bin/python ]] && ! any '.venv/cuda12/nvidia/*/lib/libnvrtc.so.12'; then
  say "installing NVRTC of CUDA 12 into .venv/cuda12"
  .venv/bin/python -m pip install -q --disable-pip-version-check --retries 1 --timeout 20 --no-deps --target .venv/cuda12 \
    'nvidia-cuda-nvrtc-cu12<13' ||
    say "NVRTC of CUDA 12 could not be installed: compiling for sm_70 will not be tested"
fi
