"""PyTorch's own tests of c10d over the backend "maco", on the CPU: those that an installed PyTorch has.

torch_suites.txt says which of them run on how many ranks, and which don't, with the reason. A rank is a process that runs one test after
the other, each in a process group of its own. Which backend may take a test, torch says by decorators that know torch's backends only, so
that the functions inside of them are called; what isn't for MACO is in the table.
"""

import faulthandler
import inspect
import os
import traceback
from pathlib import Path
from typing import NamedTuple

import pytest
import ranks

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
pytest.importorskip("expecttest", reason="PyTorch's tests need the package expecttest")

TABLE = Path(__file__).with_name("torch_suites.txt")
VERSION = "2.11."
"""Of PyTorch, whose tests the table names all."""
GLOO = ("test_accumulate_gradients",)
"""Tests that do what they do on the CPU if the backend is called "gloo" there."""


class Case(NamedTuple):
    """A test that runs: on which numbers of ranks, and whether a kernel of MACO's has to run for it."""

    name: str
    worlds: tuple[int, ...]
    own: bool


def table():
    """What runs, by area, and the names of what is left out."""
    runs, without = {}, []
    into = None
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("run "):
            into = runs.setdefault(line.split()[1], [])
        elif line.startswith("left out "):
            into = None
        elif line.startswith("  "):
            name, *words = line.split()
            if into is None:
                without.append(name)
            else:
                into.append(Case(name, tuple(int(one) for one in words[0].split(",")), words[1:] == ["maco"]))
    return runs, without


def suite(folder):
    """torch's module of tests, which reads the environment when it is imported."""
    # "mpi" is the name of which no test asks for so many ranks or GPUs.
    os.environ.update(BACKEND="mpi", TEMP_DIR=folder, INIT_METHOD=f"file://{folder}/again")
    import torch.testing._internal.distributed.distributed_test as module

    return module


def upstream(backend, folder, cases):
    """Runs the tests, as one rank; what failed, with its traceback, and how many kernels of MACO's each test ran."""
    from datetime import timedelta

    from torch.testing._internal import common_utils

    from maco import eager

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    module = suite(folder)
    base = module.DistributedTest._DistTestBase
    kind = type("Suite", (module.TestDistBackend, base), {})
    launched, run = [], eager.Program.__call__

    def call(self, *arguments):
        launched.append(self.name)
        return run(self, *arguments)

    eager.Program.__call__ = call
    failed, counts = {}, {}
    for number, name in enumerate(cases):
        faulthandler.dump_traceback_later(100, exit=True)
        launched.clear()
        module.BACKEND = "gloo" if name.startswith(GLOO) else backend
        module.Barrier.barrier_id = 1000 * (number + 1)  # whatever the tests before have left
        try:
            case = kind(name)
            case.rank, case.file_name = rank, f"{folder}/store{number}"
            dist.init_process_group(
                init_method=case.init_method, backend=backend, world_size=world, rank=rank, timeout=timedelta(seconds=60)
            )
            case._barrier(timeout=60)
            common_utils.set_rng_seed()
            inspect.unwrap(getattr(base, name))(case)
            case._barrier(timeout=60)
        except (Exception, SystemExit):  # noqa: BLE001 - for the one who started the ranks
            failed[name] = traceback.format_exc()
        if dist.is_initialized():
            dist.destroy_process_group()
        counts[name] = len(launched)
        faulthandler.cancel_dump_traceback_later()
    return failed, counts


RUNS, WITHOUT = table()


ON_TWO = [pytest.param(2, "cpu:maco,cuda:maco", [area], id=f"{area} on 2") for area in RUNS]
ON_THREE = [pytest.param(3, "maco", list(RUNS), id="on 3")]


@pytest.mark.parametrize(("world", "backend", "areas"), ON_TWO + ON_THREE)
def test_upstream(world, backend, areas, tmp_path):
    for name in ("barrier", "test_dir"):
        (tmp_path / name).mkdir()
    cases = [case for area in areas for case in RUNS[area] if world in case.worlds]
    found = ranks.run(world, upstream, backend, str(tmp_path), [case.name for case in cases])
    told = [f"{name} on rank {rank}:\n{text}" for rank, (failed, _) in enumerate(found) for name, text in failed.items()]
    assert not told, "\n".join(told)
    for case in cases:
        count = max(counts[case.name] for _, counts in found)
        assert bool(count) == case.own, f"{case.name} ran {count} kernels of MACO's, which {TABLE.name} says otherwise"


def names():
    module = suite("/tmp")
    return [name for name in vars(module.DistributedTest._DistTestBase) if name.startswith("test_")]


def test_the_table_names_all_of_them():
    listed = [case.name for cases in RUNS.values() for case in cases] + WITHOUT
    assert len(listed) == len(set(listed))
    (there,) = ranks.run(1, names)
    missing = {case.name for cases in RUNS.values() for case in cases} - set(there)
    assert not missing, f"this PyTorch hasn't {sorted(missing)}"
    if torch.__version__.startswith(VERSION):
        assert set(listed) == set(there), sorted(set(listed) ^ set(there))
