#!/usr/bin/env python3
"""An installed MACO is found, compiled against and linked as users do: shared and static, by CMake and by pkg-config.

  installed_test.py --build build [--folder DIR]

Installs into an empty folder, then builds the examples of examples/host there and runs them on the CPU target, and the lines of C++
that the top README shows, as they stand.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = ["two_ranks", "decode_loop", "plain_c"]


def run(command, **options):
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if ran.returncode != 0:
        print(ran.stdout + ran.stderr)
        sys.exit(f"{' '.join(command)} ended with status {ran.returncode}")
    return ran.stdout


def examples(prefix, folder, static):
    """Builds them in a folder of their own, out of the tree, and runs them."""
    sources = os.path.join(folder, "host")
    if not os.path.exists(sources):
        shutil.copytree(os.path.join(ROOT, "examples", "host"), sources)
    build = os.path.join(folder, "static" if static else "shared")
    run(["cmake", "-S", sources, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DEXAMPLES_STATIC={'ON' if static else 'OFF'}"])
    run(["cmake", "--build", build])
    for name in EXAMPLES:
        print(f"{os.path.basename(build)} {name}:", run([os.path.join(build, name)]).strip().splitlines()[-1])


def readme_lines():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        found = re.findall(r"<!-- compiled by tests/api/installed_test.py -->\n```cpp\n(.*?)```", file.read(), re.S)
    if len(found) != 1:
        sys.exit(f"README.md has {len(found)} pieces of C++, not one")
    return found[0]


def readme(prefix, folder):
    """The README's lines, by pkg-config."""
    source = os.path.join(folder, "readme.cpp")
    with open(source, "w", encoding="utf-8") as file:
        file.write(readme_lines())
    environment = {**os.environ, "PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig")}
    flags = run(["pkg-config", "--cflags", "--libs", "maco"], env=environment).split()
    program = os.path.join(folder, "readme")
    run([os.environ.get("CXX", "c++"), "-std=c++20", "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags])
    said = run([program], env={**os.environ, "LD_LIBRARY_PATH": os.path.join(prefix, "lib")})
    print("README:", said.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "prefix")
        run(["cmake", "--install", args.build, "--prefix", prefix])
        # Whoever installs it elsewhere than planned, or moves it, finds it all the same.
        moved = os.path.join(folder, "moved")
        os.rename(prefix, moved)
        for static in (False, True):
            examples(moved, folder, static)
        if shutil.which("pkg-config"):
            readme(moved, folder)
        else:
            print("README's lines: not tested here: there is no pkg-config")


if __name__ == "__main__":
    main()
