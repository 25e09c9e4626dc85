#!/usr/bin/env bash
# Makes the wheel of the Python package from the build tree `build`, and installs it into a fresh environment, build/python.
#
#   tools/wheel.sh [FOLDER]   the wheel goes to FOLDER, else to build/wheels
#
# The environment has nothing but the wheel; tests find what they need besides, such as pytest and PyTorch, in .venv, behind it.
# tools/try-wheel.sh tries the wheel with other versions of Python and PyTorch. Of the wheel
#   auditwheel repair --exclude 'libclang-cpp.so*' --exclude 'libLLVM.so*' build/wheels/maco-*.whl
# makes one for other distributions, on which kernels of users need Clang's libraries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/wheels}
python=$PWD/.venv/bin/python
"$python" -c 'import scikit_build_core' 2>/dev/null ||
  { echo 'wheel: scikit-build-core is missing: tools/setup.sh installs it' >&2; exit 1; }

rm -rf build/python "$folder"
# In the tree that is built: nothing is compiled twice, and it keeps its tests.
"$python" -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps \
  -C build-dir=build -C cmake.define.MACO_TESTS=ON -w "$folder" .
"$python" -m venv --without-pip build/python
packages=$(build/python/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -m pip --python build/python/bin/python install -q --disable-pip-version-check --no-deps "$folder"/maco-*.whl
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$packages/tests.pth"
