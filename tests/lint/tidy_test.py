#!/usr/bin/env python3
"""Runs the checks of .clang-tidy over ir, compiler, runtime and tools, as they are compiled, and first over an example of what each finds.

  tidy_test.py --build build [FILE...]

Files of a folder are read as one, so that the standard library's headers are parsed once and not for each; those that define the same names
for themselves are read apart. Status 77 (skipped) if there is no clang-tidy in the version of tools/requirements.txt, or no database of
compile commands. What clang-tidy said of a group is kept until one of its files, a header that these include, flags, .clang-tidy, the tool
or the machine's packages change (tests/e2e/kept.py).
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

from sources import ROOT, find_tool, read, tracked
from tidy_examples import EXAMPLES, HEADER

sys.path.append(os.path.join(ROOT, "tests", "e2e"))
from kept import identity, installed, kept  # noqa: E402

FOLDERS = ("ir/", "compiler/", "runtime/", "tools/")
JOBS = 2
FINDING = re.compile(r"^(\S+?):(\d+):(\d+): (?:warning|error): (.*) \[([\w.,-]+)\]$", re.M)


def flags_of(command):
    """The flags of a compile command that parsing alone needs."""
    words, kept = shlex.split(command), []
    for i, word in enumerate(words):
        if word.startswith(("-D", "-I", "-std=")):
            kept.append(word)
        elif word == "-isystem":
            kept += words[i : i + 2]
    return tuple(kept)


def included(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r'^#include "(.*)"', file.read(), re.M)


def groups(build, wanted):
    """Files that are read together, those of a folder that have the same flags: (flags, paths)."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    commands = {}
    for entry in entries:
        # A file that includes others, which are compiled as one.
        unit = re.fullmatch(r"unity_\d+_cxx\.cxx", os.path.basename(entry["file"]))
        for path in included(entry["file"]) if unit else [entry["file"]]:
            commands[os.path.relpath(path, ROOT)] = flags_of(entry["command"])
    made = {}
    for path in wanted:
        if path in commands:
            made.setdefault((os.path.dirname(path), commands[path]), []).append(path)
    return [(flags, paths) for (_, flags), paths in made.items()]


def texts(flags, paths):
    """Names and texts of the files, and of all headers of the project that they include."""
    folders = [ROOT] + [flag[2:] for flag in flags if flag.startswith("-I")]
    found, todo = {}, [os.path.join(ROOT, path) for path in paths]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        with open(path, encoding="utf-8") as file:
            found[path] = file.read()
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', found[path], re.M):
            candidates = [os.path.join(folder, name) for folder in [os.path.dirname(path), *folders]]
            todo += [candidate for candidate in candidates if os.path.isfile(candidate)]
    return [text for path in sorted(found) for text in (os.path.relpath(path, ROOT), found[path])]


def said_before(tool, folder, number, flags, paths):
    """What tidy() finds, or found when everything that it reads was the same."""
    settings = [identity(tool), installed(), read(".clang-tidy"), " ".join(flags).replace(ROOT, "")]
    inputs = ["clang-tidy", *settings, *paths, *texts(flags, paths)]
    ran = lambda findings: not any(check == "clang-tidy" for *_, check in findings)
    return {tuple(finding) for finding in kept(inputs, lambda: sorted(tidy(tool, folder, number, flags, paths)), ran)}


def tidy(tool, folder, number, flags, paths):
    """Findings (path, line, column, message, check) in files that are read as one."""
    unit = os.path.join(folder, f"unit{number}.cpp")
    with open(unit, "w", encoding="utf-8") as file:
        file.write("".join(f'#include "{os.path.join(ROOT, path)}"\n' for path in paths))
    ran = subprocess.run([tool, "--quiet", f"--config-file={ROOT}/.clang-tidy", unit, "--", *flags, "-ferror-limit=0"],
                         capture_output=True, text=True, check=False)
    found = {(os.path.relpath(os.path.realpath(path), ROOT), int(line), int(column), message, check.removesuffix(",-warnings-as-errors"))
             for path, line, column, message, check in FINDING.findall(ran.stdout)}
    broken = {path for path, *_, check in found if check == "clang-diagnostic-error"}
    if broken and len(paths) > 1:
        # Names that two files have, each for itself: what defines them again is read apart.
        apart = [path for path in paths if path in broken]
        parts = [apart] if 0 < len(apart) < len(paths) else [[path] for path in paths]
        found = {finding for finding in found if parts == [apart] and finding[0] not in broken}
        for i, part in enumerate(parts):
            found |= tidy(tool, folder, f"{number}-{i}", flags, part)
    elif ran.returncode and not found:
        return {(paths[0], 1, 1, f"clang-tidy ended with status {ran.returncode}: {ran.stderr.strip()}", "clang-tidy")}
    return found


def check(tool, work):
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        # The largest first.
        todo = sorted(work, key=lambda group: -sum(os.path.getsize(os.path.join(ROOT, path)) for path in group[1]))
        found = pool.map(lambda numbered: said_before(tool, folder, numbered[0], *numbered[1]), enumerate(todo))
        return sorted(set().union(*found))


def self_test(tool):
    """Each check finds its example, and nothing else is found."""
    checks = set(re.findall(r"^  ([a-z]+-[\w-]+),?$", read(".clang-tidy"), re.M))
    failures = [f"no example of what {name} finds" for name in sorted(checks - EXAMPLES.keys())]
    failures += [f"{name} is no check of .clang-tidy" for name in sorted(EXAMPLES.keys() - checks)]
    with tempfile.TemporaryDirectory() as folder:
        path, lines = os.path.join(folder, "examples.cpp"), {}
        with open(os.path.join(folder, "header.h"), "w", encoding="utf-8") as file:
            file.write(HEADER)
        with open(path, "w", encoding="utf-8") as file:
            at = 1
            for name, text in EXAMPLES.items():
                lines[name] = range(at, at + text.count("\n"))
                at += text.count("\n")
                file.write(text)
        found = tidy(tool, folder, 0, ("-std=c++20",), [path])
    for name, where in lines.items():
        if not any(check == name and (line in where or found_in.endswith("header.h")) for found_in, line, _, _, check in found):
            failures.append(f"{name} does not find its example")
    for found_in, line, _, message, name in sorted(found):
        if name not in EXAMPLES:
            failures.append(f"{found_in}:{line}: {message} [{name}]")
    print("\n".join(f"self-test: {failure}" for failure in failures + [f"{len(EXAMPLES)} examples, {len(failures)} failures"]))
    return len(failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="folder with compile_commands.json")
    parser.add_argument("files", nargs="*", help="look at these only")
    args = parser.parse_args()
    tool, why = find_tool("clang-tidy")
    if not why and not os.path.exists(os.path.join(args.build, "compile_commands.json")):
        why = f"no compile_commands.json in {args.build}"
    if why:
        print(f"SKIPPED: {why}")
        return 77
    failures = 0 if args.files else self_test(tool)
    wanted = args.files or [path for path in tracked() if path.startswith(FOLDERS) and path.endswith(".cpp")]
    work = groups(args.build, wanted)
    findings = check(tool, work)
    for path, line, column, message, name in findings:
        print(f"{path}:{line}:{column}: {message} [{name}]")
    print(f"{sum(len(paths) for _, paths in work)} files in {len(work)} groups, {len(findings)} findings")
    return 1 if failures or findings else 0


if __name__ == "__main__":
    sys.exit(main())
