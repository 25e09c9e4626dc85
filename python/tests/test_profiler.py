"""The profiler: what each op took, and how much of it was hidden."""

import json
import pickle

import pytest
import ranks

import maco
from maco.profiling import Profiler, _common, _Run, _union

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    monkeypatch.delenv("MACO_CPU_SMS", raising=False)


EMPTY = """\
┌─────────────────┬──────────┬──────────┬──────────┐
│ Operation       │ Time(ms) │ Overlap% │ SM Usage │
├─────────────────┼──────────┼──────────┼──────────┤
└─────────────────┴──────────┴──────────┴──────────┘
Total overlap efficiency: 0%
"""


def task(name, kind, rank, sm, begin, end):
    return {"ph": "X", "name": name, "cat": kind, "pid": rank, "tid": sm, "ts": begin, "dur": end - begin}


def profiled(*events):
    prof = Profiler()
    prof._runs = [_Run(json.dumps(events), 1e6)]
    return prof


def test_nothing_gives_an_empty_table(capsys):
    with maco.profiler() as prof:
        pass
    prof.print_summary()
    assert capsys.readouterr().out == EMPTY
    assert prof.table == [] and prof.overlap_efficiency == 0


def test_overlap_is_time_beside_the_other_class():
    prof = profiled(
        task("matmul_qkv", "matmul", 0, 0, 0, 400),
        task("matmul_qkv", "matmul", 0, 1, 100, 420),
        task("allreduce_attn", "allreduce", 0, 6, 300, 500),
        {**task("wait", "wait", 0, 6, 0, 300)},
        {**task("fill matmul_qkv", "loader", 0, 2, 0, 300)},
    )
    product, reduction = prof.table
    assert product["Operation"] == "matmul_qkv" and product["Time(ms)"] == pytest.approx(0.42) and product["SM Usage"] == 2
    assert product["Overlap%"] == pytest.approx(120 / 420 * 100)
    assert reduction["Overlap%"] == pytest.approx(60) and prof.overlap_efficiency == pytest.approx(0.6)
    assert reduction["SM Usage"] == 1 and reduction["Kind"] == "allreduce"


def test_ranks_are_apart():
    prof = profiled(
        task("m", "matmul", 0, 0, 0, 100), task("r", "allreduce", 1, 6, 0, 100), task("r", "allreduce", 0, 6, 100, 200),
    )  # fmt: skip
    assert [row["Overlap%"] for row in prof.table] == [0, 0] and prof.overlap_efficiency == 0
    assert [row["Time(ms)"] for row in prof.table] == pytest.approx([0.05, 0.1])


def test_times_are_joined():
    assert _union([(5, 7), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 7)]
    assert _common([(0, 4), (5, 7)], [(1, 2), (3, 6)]) == 3


def test_the_table_is_the_documents(capsys):
    prof = profiled(task("matmul_qkv", "matmul", 0, 0, 0, 420), task("allreduce_attn", "allreduce", 0, 6, 0, 180))
    prof.print_summary()
    lines = capsys.readouterr().out.splitlines()
    assert lines[3] == "│ matmul_qkv      │ 0.42     │ 43%      │ 1 SM     │"
    assert lines[4] == "│ allreduce_attn  │ 0.18     │ 100%     │ 1 SM     │"
    assert lines[-1] == "Total overlap efficiency: 100%"


def kernel_of(x, w):
    kernel = maco.PersistentKernel(num_workers=6, num_remote_schedulers=2)
    a, b = kernel.register_tensor(x, name="x"), kernel.register_tensor(w, name="w")
    with kernel.task_graph() as graph:
        graph.relu(graph.allreduce(graph.matmul(a, b, name="qkv"), name="sum"), name="last")
    return kernel


def test_kernels_from_before_the_block_are_seen(tmp_path):
    x, w = torch.randn(64, 32), torch.randn(32, 16)
    kernel = kernel_of(x, w)
    kernel()
    with maco.profiler() as prof:
        first = prof.table
        kernel()
        inside = len(prof.table)
        kernel()
        with pytest.raises(maco.Error, match="in use"), prof:
            pass
    kernel()
    assert first == [] and inside >= 1
    assert all(row["Runs"] == 2 and row["Time(ms)"] > 0 and 1 <= row["SM Usage"] <= 6 for row in prof.table)
    path = tmp_path / "trace.json"
    path.write_text("old" * 100000)
    prof.export_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {row["Operation"] for row in prof.table}
    tasks = [one for one in events if one["ph"] == "X" and one["name"] in names]
    assert tasks and all({"ts", "dur", "pid", "tid"} <= set(one) and one["dur"] >= 0 for one in tasks)
    runs = sorted(one["ts"] for one in tasks)
    assert runs[-1] > runs[0] >= 0
    with pytest.raises(maco.Error, match="can't be written"):
        prof.export_chrome_trace(tmp_path / "none" / "trace.json")
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(prof)
    with prof:
        pass
    assert prof.table == []


def test_results_are_the_same_under_it():
    x, w = torch.randn(8, 16), torch.randn(16, 16)

    @maco.optimize
    def function(one):
        return torch.relu(maco.allreduce(one @ w))

    want = function(x)
    with maco.profiler() as outer, maco.profiler() as inner:
        found = function(x)
        with maco.auto_overlap():
            more = x @ w
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(more, x @ w)
    assert outer.table == inner.table and outer.table


def test_a_block_that_raises_ends_it():
    from maco.program import listeners

    with pytest.raises(ZeroDivisionError), maco.profiler():
        _ = 1 / 0
    assert not listeners


def on_ranks():
    rank = maco.get_rank()
    x, w = torch.randn(64, 32), torch.randn(32, 16)
    kernel = kernel_of(x, w)
    kernel()
    with maco.profiler() as prof:
        kernel()
        maco.allreduce(x)
    rows = {row["Operation"]: row for row in prof.table}
    assert rows["sum"]["Kind"] == "allreduce" and rows["qkv"]["Kind"] == "matmul"
    assert rows["sum"]["SM Usage"] <= 2 and 0 <= prof.overlap_efficiency <= 1
    pids = {one["pid"] for run in prof._runs for one in run.events if one["ph"] == "X"}
    assert pids == set(range(maco.get_world_size())), rank
    return sorted(rows)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks(world):
    found = ranks.run(world, on_ranks)
    assert all(one == found[0] for one in found) and "allreduce" in found[0]
