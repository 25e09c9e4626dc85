"""python -m maco."""

import subprocess
import sys

import pytest

import maco
from conftest import child_environment
from maco import cli

GRAPH = "graph g(world = 2) {\n  input x : f32[8, 8]\n  output y = allreduce(x)\n}\n"


def command(*arguments, text=None, **env):
    return subprocess.run(
        [sys.executable, "-m", "maco", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        input=text,
        env=child_environment(**env),
    )


def test_info():
    ran = command("info")
    assert ran.returncode == 0, ran.stderr
    rows = dict(line.split("  ", 1) for line in ran.stdout.split("\n\n")[0].splitlines())
    assert rows["maco"].strip().startswith(maco.__version__)
    assert "libmaco.so" in rows["libmaco.so"] and "macoc" in rows["macoc"]
    assert {"Python", "CUDA driver", "NVRTC", "NCCL", "C++ compiler", "torch", "numpy"} <= set(rows)
    assert "not installed" not in rows["numpy"]


def test_info_says_what_to_do_about_what_is_missing(tmp_path):
    ran = command("info", MACO_LIBRARY=str(tmp_path / "none.so"), MACO_CXX="/nowhere/c++")
    assert ran.returncode == 4
    assert "libmaco.so can't be loaded" in ran.stdout and "set MACO_LIBRARY" in ran.stdout
    missing = ran.stdout.split("missing:\n")[1]
    assert "libmaco.so: " in missing and "C++ compiler: needed to run on the CPU target" in missing


def test_the_programs(tmp_path):
    (tmp_path / "g.maco").write_text(GRAPH)
    ran = command("compile", str(tmp_path / "g.maco"), "--target=cpu", "-o", str(tmp_path / "kernel.cu"))
    assert ran.returncode == 0, ran.stderr
    assert maco.Kernel.load(tmp_path / "kernel.cu").world == 2
    ran = command("run", str(tmp_path / "kernel.cu"), "--device", "cpu", "--check")
    assert ran.returncode == 0 and "ok on 2 ranks" in ran.stdout + ran.stderr
    ran = command("explain", str(tmp_path / "g.maco"), "y", "--target=cpu")
    assert ran.returncode == 0 and "allreduce" in ran.stdout
    ran = command("compile", "-", text="graph g {\n  input x : f33[4]\n}\n")
    assert ran.returncode == 1 and "<stdin>:2:" in ran.stderr


PROGRAM = """
import sys, numpy, maco
g = maco.Graph("small")
g.output("y", g.relu(g.input("x", "f32", [4, 8]), name="r"))
k = maco.PersistentKernel(1, 0)
x = k.register_tensor(numpy.ones((4, 8), numpy.float32), name="x")
with k.task_graph() as g:
    g.relu(x, output=k.register_output((4, 8), "f32", name="y"))
print(sys.argv[1:], k().sum())
sys.exit(3)
"""


def test_traces(tmp_path):
    (tmp_path / "g.maco").write_text(GRAPH)
    trace = tmp_path / "t.json"
    ran = command("trace", str(tmp_path / "g.maco"), "-o", str(trace), "--device=cpu")
    assert ran.returncode == 0 and "critical path" in ran.stdout, ran.stderr
    assert '"X"' in trace.read_text().replace(" ", "")
    (tmp_path / "p.py").write_text(PROGRAM)
    trace.unlink()
    ran = command("trace", str(tmp_path / "p.py"), "-o", str(trace), "--mine", MACO_DEVICE="cpu")
    assert ran.returncode == 3 and "['--mine'] 32.0" in ran.stdout, ran.stderr
    assert "Operation" in ran.stdout and '"X"' in trace.read_text()
    assert command("trace", str(tmp_path / "none.py")).returncode == 2
    trace.unlink()
    ran = command("trace", str(tmp_path / "g.maco"), "--device=cpu", "-o", str(trace))
    assert ran.returncode == 0 and trace.is_file(), ran.stderr
    assert command("trace", "g.maco", "-o").returncode == 2
    assert command("trace", "-o", str(trace)).returncode == 2
    ran = command("trace", "-o", str(trace), str(tmp_path / "g.maco"), "--device=cpu")
    assert ran.returncode == 0 and trace.is_file(), ran.stderr


@pytest.mark.parametrize(
    "arguments, status, said",
    [
        ([], 2, "maco compile GRAPH"),
        (["--help"], 0, "maco info"),
        (["inf"], 2, "unknown command 'inf'; did you mean 'info'?"),
        (["qqqqqq"], 2, "see maco --help"),
        (["explain", "g.maco"], 2, "takes a graph and an op"),
        (["--version"], 0, maco.__version__),
    ],
)
def test_the_command_line(arguments, status, said, capsys):
    assert cli.main(arguments) == status
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


def test_a_program_that_is_nowhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("maco._native.PACKAGE", tmp_path / "a" / "b")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("MACO_LIBRARY", raising=False)
    assert cli.main(["run", "x"]) == 4
    assert "the program maco-run is neither in" in capsys.readouterr().err
