#!/usr/bin/env python3
"""Sources are laid out as .clang-format says, and lines keep to their width: 100 columns in C++ and CUDA, 140 in Python and shell.

  format_test.py              checks, and first that what is spoiled is found
  format_test.py --fix        formats what clang-format formats

clang-format leaves comments as they are (they are wrapped by hand), so their width is looked at here. A raw string literal has any width.
Status 77 (skipped) if there is no clang-format in the version of tools/requirements.txt.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

from sources import ROOT, TOKEN, find_tool, read, tracked

CPP, SCRIPTS = (".cpp", ".h", ".cuh", ".cu"), (".py", ".sh")
STYLE = f"--style=file:{ROOT}/.clang-format"
JOBS = 2


def wide(path, text):
    """Lines that are too wide, as (line, message)."""
    most = 100 if path.endswith(CPP) else 140
    excepted = set()
    if path.endswith(CPP):
        for token in TOKEN.finditer(text):
            if token[0].startswith('R"'):
                first = text.count("\n", 0, token.start()) + 1
                excepted.update(range(first, first + token[0].count("\n") + 1))
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > most and number not in excepted:
            yield number, f"{len(line)} columns of {most}"


def misformatted(clang_format, paths):
    """What clang-format says of files; "" if nothing."""
    ran = subprocess.run([clang_format, "--dry-run", "--Werror", STYLE, *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr if ran.returncode else ""


def check(clang_format, paths):
    findings = []
    for path in paths:
        if path.endswith(CPP + SCRIPTS):
            findings += [f"{path}:{line}: {message}" for line, message in wide(path, read(path))]
    formatted = [path for path in paths if path.endswith(CPP)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        said = pool.map(lambda part: misformatted(clang_format, part), [formatted[i::JOBS] for i in range(JOBS) if formatted[i::JOBS]])
    return findings + [text for text in said if text]


# Name and text of a file, and what must be said of it; None if it is good.
EXAMPLES = [
    ("good.cpp", "int f(int a) { return a; }\n", None),
    ("indented.cpp", "int f(int a) {\n    return a;\n}\n", "indented.cpp:1:15: error: code should be clang-formatted"),
    ("brace.h", "struct A\n{\n};\n", "brace.h:1:9: error: code should be clang-formatted"),
    ("device.cuh", "inline int f( int a ) { return a; }\n", "device.cuh:1:14: error: code should be clang-formatted"),
    ("comment.cpp", "// " + "wide " * 20 + "\n", "comment.cpp:1: 103 columns of 100"),
    ("raw.cpp", 'const char* text =\n    R"(' + "wide " * 20 + ')";\n', None),
    ("script.py", "# " + "wide " * 28 + "\n", "script.py:1: 142 columns of 140"),
    ("script.sh", "# " + "wide " * 28 + "\n", "script.sh:1: 142 columns of 140"),
    ("fits.py", "# " + "wide " * 27 + "\n", None),
]


def self_test(clang_format):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text, wanted in EXAMPLES:
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            said = "\n".join(check(clang_format, [path]))
            if bool(said) != bool(wanted) or (wanted or "") not in said:
                failures += 1
                print(f"self-test: {name}: expected {wanted!r}, got {said!r}")
    print(f"self-test: {len(EXAMPLES)} examples, {failures} failures")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="format the files")
    args = parser.parse_args()
    clang_format, why = find_tool("clang-format")
    if not clang_format:
        print(f"SKIPPED: {why}")
        return 77
    paths = tracked()
    if args.fix:
        return subprocess.run([clang_format, "-i", STYLE, *(p for p in paths if p.endswith(CPP))], cwd=ROOT, check=False).returncode
    failures = self_test(clang_format)
    findings = check(clang_format, paths)
    for finding in findings:
        print(finding)
    print(f"{sum(p.endswith(CPP + SCRIPTS) for p in paths)} files, {len(findings)} findings")
    return 1 if failures or findings else 0


if __name__ == "__main__":
    sys.exit(main())
