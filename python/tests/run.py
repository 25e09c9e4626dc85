#!/usr/bin/env python3
"""The package's tests, and what mypy and ruff say of it. Status 77 (skipped) where pytest is missing.

    run.py [--installed FOLDER] [--library FOLDER] [ARGUMENTS OF PYTEST]

--installed: an environment with the wheel, which is tested where it has the checkout's package; --library: else the checkout's package is,
over the library in that folder.
"""

import argparse
import filecmp
import importlib.util
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def same_package(environment: pathlib.Path) -> bool:
    """Whether the environment has the package with the files that the checkout has now."""
    for package in environment.glob("lib/python3*/site-packages/maco"):
        own = ROOT / "python" / "maco"
        names = {str(file.relative_to(root)) for root in (own, package) for file in root.rglob("*.py")}
        return all((own / n).is_file() and (package / n).is_file() and filecmp.cmp(own / n, package / n, False) for n in names)
    return False


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--installed", type=pathlib.Path)
    parser.add_argument("--library")
    options, more = parser.parse_known_args()
    if importlib.util.find_spec("pytest") is None or importlib.util.find_spec("numpy") is None:
        print("skipped: pytest or NumPy is missing (tools/setup.sh installs them)")
        return 77
    python, environment = sys.executable, dict(os.environ)
    if options.installed and same_package(options.installed):
        python = str(options.installed / "bin" / "python")
        for name in ("PYTHONPATH", "MACO_LIBRARY"):
            environment.pop(name, None)
        print(f"testing the wheel in {options.installed}")
    elif options.library:
        environment["MACO_LIBRARY"] = options.library
        print(f"not tested here: the wheel (tools/wheel.sh installs it in {options.installed}); the checkout's package is")
    sys.stdout.flush()
    commands = [[python, "-m", "pytest", "-q", *(more or ["python/tests"])]]
    for tool, arguments in (("mypy", ["--config-file", "pyproject.toml"]), ("ruff", ["check", "python"])):
        if importlib.util.find_spec(tool) is None:
            print(f"not tested here: {tool} is missing")
        elif not more:
            commands.append([sys.executable, "-m", tool, *arguments])
    wrong = [command[2] for command in commands if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode]
    print(f"{len(commands)} of pytest, mypy and ruff, {len(wrong)} failed: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
