"""The Python of docs/python.md runs, in its order, as one program on one rank and on two, and prints what the page says; README's, too.

docs/python-api.md is what tools/python-api.py prints.
"""

import re
import subprocess
import sys

import pytest
import ranks

import maco
from conftest import child_environment

pytest.importorskip("torch")

FENCE = re.compile(r"^```(\w*)$")
PRINTS = re.compile(r"^<!-- prints(?: on (\d+) ranks?)? -->$")
MARK = "--- line "


def program(text, world):
    """The page's Python, on the lines where it stands, and what blocks print by the line that they end at."""
    lines, expected = [""] * len(text.splitlines()), {}
    inside, begin, last, told = None, 0, 0, None
    for number, line in enumerate(text.splitlines()):
        fence = FENCE.match(line)
        if inside is not None and line == "```":
            if inside == "python":
                last = number
                lines[number] = f"print({MARK + str(number)!r}, flush=True)"
            elif told is not None and told in (0, world):
                expected[last] = "\n".join(text.splitlines()[begin + 1 : number]) + "\n"
            inside = None
            told = None
        elif inside is not None:
            if inside == "python":
                lines[number] = line
        elif fence:
            inside, begin = fence.group(1), number
        elif found := PRINTS.match(line):
            told = int(found.group(1) or 0)
    return "\n".join(lines) + "\n", expected


def shown(output):
    """What was printed ahead of each mark, by its line."""
    found, part = {}, ""
    for line in output.splitlines(keepends=True):
        if line.startswith(MARK):
            found[int(line.removeprefix(MARK))] = part
            part = ""
        else:
            part += line
    return found


def run(file, world, timeout=300):
    """The standard output of a Python program on each rank. Fails if one of them does."""
    port = str(ranks.free_port())
    running = []
    for rank in range(world):
        started = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        env = child_environment(MACO_DEVICE="cpu", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", **(started if world > 1 else {}))
        env.pop("MACO_CPU_SMS", None)
        running.append(subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env))
    try:
        ended = [one.communicate(timeout=timeout) for one in running]
    finally:
        for one in running:
            one.kill()
    for rank, (one, (out, err)) in enumerate(zip(running, ended, strict=True)):
        assert one.returncode == 0, f"rank {rank} of {world} ended with status {one.returncode}:\n{out[-2000:]}\n{err[-6000:]}"
    return [out for out, _ in ended]


@pytest.mark.parametrize("world", [1, 2])
def test_the_page_runs(world, checkout, tmp_path):
    text = (checkout / "docs/python.md").read_text(encoding="utf-8")
    source, expected = program(text, world)
    assert expected and source.count(MARK) >= 15
    file = tmp_path / "python_page.py"
    file.write_text(source, encoding="utf-8")
    for out in run(file, world):
        found = shown(out)
        for line, wanted in expected.items():
            assert found[line] == wanted, f"docs/python.md:{line + 1} prints something else"


@pytest.mark.parametrize("world", [1, 2])
def test_readmes_example_runs(world, checkout, tmp_path):
    text = (checkout / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- run by python/tests/test_docs_python.py -->\n```python\n(.*?)```", text, re.S)
    assert block, "README.md has no Python that is run"
    file = tmp_path / "readme.py"
    file.write_text(block.group(1), encoding="utf-8")
    for out in run(file, world):
        assert out.strip() == f"tensor({64.0 * world:.0f}.)"


def test_the_reference_is_up_to_date(checkout):
    told = [sys.executable, "tools/python-api.py"]
    ran = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False, cwd=checkout)
    assert ran.returncode == 0, ran.stderr
    page = (checkout / "docs/python-api.md").read_text(encoding="utf-8")
    part = page.partition("<!-- table from: python3 tools/python-api.py -->\n")[2].partition("<!-- end of table -->")[0]
    assert part == ran.stdout, "docs/python-api.md is out of date: tools/update-docs.py writes it"


def test_every_public_name_is_in_the_reference(checkout):
    page = (checkout / "docs/python-api.md").read_text(encoding="utf-8")
    headings = "\n".join(line for line in page.splitlines() if line.startswith("### "))
    names = {*maco.__all__, *maco._LAZY} - {"config"}
    missing = [name for name in sorted(names) if not re.search(rf"\bmaco\.{name}\b", headings)]
    assert not missing, missing
