#!/usr/bin/env python3
"""The package's tests, and what mypy and ruff say of it. Status 77 (skipped) where pytest is missing."""

import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main() -> int:
    if importlib.util.find_spec("pytest") is None or importlib.util.find_spec("numpy") is None:
        print("skipped: pytest or NumPy is missing (tools/setup.sh installs them)")
        return 77
    commands = [["pytest", "-q", "python/tests"]]
    for tool, arguments in (("mypy", ["--config-file", "pyproject.toml"]), ("ruff", ["check", "python"])):
        if importlib.util.find_spec(tool) is None:
            print(f"not tested here: {tool} is missing")
        else:
            commands.append([tool, *arguments])
    wrong = [command[0] for command in commands if subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode]
    print(f"{len(commands)} of pytest, mypy and ruff, {len(wrong)} failed: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
