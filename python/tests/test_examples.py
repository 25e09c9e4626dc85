"""The programs of examples/python, on one rank and on two, and the notebook."""

import json
import re
import subprocess
import sys

import pytest
from test_docs_python import run

from conftest import CHECKOUT, child_environment

pytest.importorskip("torch")

FOLDER = CHECKOUT / "examples" / "python"
if not FOLDER.is_dir():
    pytest.skip("not in a checkout", allow_module_level=True)
PROGRAMS = sorted(one.name for one in FOLDER.glob("*.py") if one.name != "first_steps.py")


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_run(name, world):
    for rank, out in enumerate(run(FOLDER / name, world)):
        assert re.search(r"^ranks? ", out, re.M) or out.startswith("not run: "), f"{name} says nothing on rank {rank}: {out}"


def test_a_wrong_result_ends_with_an_error(tmp_path):
    text = (FOLDER / "level1_optimize_comm.py").read_text(encoding="utf-8")
    assert "torch.relu(maco.allreduce(x @ weight))" in text
    file = tmp_path / "wrong.py"
    file.write_text(text.replace("torch.relu(maco.allreduce(x @ weight))", "maco.allreduce(x @ weight)"), encoding="utf-8")
    with pytest.raises(AssertionError, match="status 1"):
        run(file, 1)


def test_the_readme_lists_all():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    missing = [one.name for one in FOLDER.iterdir() if one.is_file() and one.name != "README.md" and f"`{one.name}`" not in text]
    assert not missing


def test_the_notebook_is_what_its_cells_print(tmp_path):
    told, env = [sys.executable, str(FOLDER / "first_steps.py"), "--check"], child_environment(MACO_DEVICE="cpu")
    ran = subprocess.run(told, capture_output=True, text=True, timeout=300, check=False, env=env, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    book = json.loads((FOLDER / "first_steps.ipynb").read_text(encoding="utf-8"))
    assert book["nbformat"] == 4 and sum(cell["cell_type"] == "code" for cell in book["cells"]) >= 6
