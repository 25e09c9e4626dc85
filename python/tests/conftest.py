"""Fixtures. The package that is tested is the installed one, else the one beside this folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent

try:
    import maco
except ImportError:
    sys.path.insert(0, str(HERE.parent))
    import maco

PACKAGE_PARENT = str(Path(maco.__file__).resolve().parent.parent)


def child_environment(**more):
    """The environment of a Python process that imports the same package."""
    env = {**os.environ, **more}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [PACKAGE_PARENT, env.get("PYTHONPATH", "")]))
    return env


@pytest.fixture
def python():
    """Runs Python text in a process of its own and gives the finished process."""

    def run(text, *, timeout=120, args=(), executable=sys.executable, env=None):
        return subprocess.run(
            [executable, "-c", text, *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=child_environment(**(env or {})),
        )

    return run


@pytest.fixture
def checkout():
    """The repository; tests that look into it are skipped without one."""
    if not (CHECKOUT / "runtime/include/maco/maco_c.h").is_file():
        pytest.skip("not in a checkout")
    return CHECKOUT


def relu_graph(world=1, shape=(4, 8), dtype="f32"):
    """Output y is relu of input x."""
    g = maco.Graph("g", world)
    g.output("y", g.relu(g.input("x", dtype, shape)))
    return g


@pytest.fixture(scope="session")
def relu_kernel():
    return relu_graph().compile(target="cpu")
