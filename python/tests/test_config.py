"""`maco.config`, and what its settings do."""

import os

import pytest
import ranks

import maco
from maco import config


@pytest.fixture(autouse=True)
def settings():
    yield
    config.reset()


def test_the_keys_of_the_document():
    given = {
        "backend": "nvshmem",
        "sm_policy": "auto",
        "overlap_strategy": "aggressive",
        "comm_buffer_size": "256MB",
        "use_pinned_memory": True,
        "debug": False,
        "profile": True,
    }
    config.set(**given)
    assert config.get() == given
    assert config.get("comm_buffer_size") == "256MB" and config.meaning("comm_buffer_size") == 256 << 20
    config.reset()
    assert config.get("backend") == "auto" and config.get("comm_buffer_size") is None


@pytest.mark.parametrize(
    ("text", "size"), [("1GB", 1 << 30), ("64 KB", 64 << 10), ("1.5MB", 3 << 19), (4096, 4096), ("512", 512), ("8MiB", 8 << 20)]
)
def test_sizes(text, size):
    config.set(comm_buffer_size=text)
    assert config.meaning("comm_buffer_size") == size


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"backnd": "auto"}, maco.Error, "no setting 'backnd'; did you mean 'backend'"),
        ({"backend": "ncl"}, maco.Error, "backend can't be 'ncl'; did you mean 'nccl'"),
        ({"sm_policy": "manul"}, maco.Error, "did you mean 'manual'"),
        ({"overlap_strategy": "agressive"}, maco.Error, "did you mean 'aggressive'"),
        ({"overlap_strategy": True}, TypeError, "overlap_strategy is a word"),
        ({"comm_buffer_size": "256 parsecs"}, maco.Error, "'256MB'"),
        ({"comm_buffer_size": 0}, maco.Error, "above 0"),
        ({"comm_buffer_size": 1.5}, TypeError, "number of bytes"),
        ({"debug": "yes"}, TypeError, "debug is True or False"),
    ],
)
def test_wrong_settings_change_nothing(settings, kind, message):
    before = config.get()
    with pytest.raises(kind, match=message):
        config.set(profile=True, **settings)
    assert config.get() == before


def test_unknown_keys_of_get_and_patch():
    with pytest.raises(maco.Error, match="did you mean 'profile'"):
        config.get("profil")
    with pytest.raises(maco.Error, match="did you mean 'debug'"), config.patch(debgu=True):
        pass


def test_patch_holds_for_its_block():
    with config.patch(debug=True, comm_buffer_size="1MB"):
        assert config.get("debug") is True
        with config.patch(debug=False):
            assert config.get("debug") is False
        assert config.get("debug") is True
    assert config.get("debug") is False and config.meaning("comm_buffer_size") is None
    with pytest.raises(ValueError, match="mine"), config.patch(debug=True):
        raise ValueError("mine")
    assert config.get("debug") is False


def two_ops(rows=None):
    graph = maco.Graph("g", 2)
    first = graph.dim("n", rows) if rows else 4
    graph.output("y", graph.relu(graph.allreduce(graph.input("x", "f32", [first, 8]))))
    return graph


def test_what_graphs_get():
    graph = two_ops()
    config.apply(graph, "cpu")
    assert "set " not in graph.text()
    config.set(overlap_strategy="none", comm_buffer_size="1MB")
    config.apply(graph, "cpu")
    assert 'set overlap = "none"' in graph.text() and "set comm_buffer_bytes = 1048576" in graph.text()
    own = two_ops()
    own.set(overlap="conservative")
    config.apply(own, "cpu")
    assert own.text().count("set overlap") == 1
    alone = maco.Graph("g")
    alone.output("y", alone.relu(alone.input("x", "f32", [4])))
    config.apply(alone, "cpu")
    assert "set " not in alone.text()


def test_policies_of_sms(monkeypatch):
    monkeypatch.setenv("MACO_CPU_SMS", "132")
    config.set(sm_policy="manual")
    with pytest.raises(maco.Error, match="nobody said which SMs of 'g'"):
        config.apply(two_ops(), "cpu")
    said = two_ops()
    said.set(sm_roles={"compute": 96, "comm": 36})
    config.apply(said, "cpu")
    config.set(sm_policy="dynamic")
    varied = two_ops(rows=64)
    config.apply(varied, "cpu")
    varied.check()
    assert '"if": "n <= 8"' in varied.text().replace("if:", '"if":') or "n <= 8" in varied.text()


def test_a_backend_that_is_not_here(monkeypatch):
    from maco import groups

    monkeypatch.delenv("MACO_DEVICE", raising=False)
    monkeypatch.setattr(groups, "_has_gpu", lambda: False)
    for name in ("p2p", "nccl", "nccl_optimized", "nvshmem"):
        monkeypatch.setattr(groups, "_state", groups._State())
        with pytest.raises(maco.Unavailable, match=f"backend '{name}' needs NVIDIA GPUs.*MACO_DEVICE=cpu"):
            maco.init(name)
    monkeypatch.setattr(groups, "_has_gpu", lambda: True)
    monkeypatch.setattr(groups, "_has_library", lambda name, variable: False)
    with pytest.raises(maco.Unavailable, match="MACO_NVSHMEM"):
        maco.init("nvshmem")
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    maco.init("nvshmem")
    maco.init("nvshmem")
    with pytest.raises(maco.Error, match="backend='nvshmem', which can't become 'nccl'"):
        config.set(backend="nccl")
    with pytest.raises(maco.Error, match="did you mean 'nccl'"):
        maco.init("ncll")


def test_backend_is_what_init_takes(monkeypatch):
    from maco import groups

    monkeypatch.setattr(groups, "_state", groups._State())
    config.set(backend="gloo")
    maco.init()
    assert groups.backend() == "gloo"
    maco.init("gloo")


def with_debug():
    torch = pytest.importorskip("torch")
    config.set(debug=True, overlap_strategy="none", comm_buffer_size="64KB", profile=True)
    x = maco.allreduce(torch.ones(3))
    assert torch.equal(x, torch.full((3,), 2.0))
    with pytest.raises(maco.MismatchError):
        maco.allreduce(torch.ones(3 + maco.get_rank()))
    # More at once than there is memory for goes in pieces.
    numbers = torch.arange(70000.0)
    assert torch.equal(maco.allreduce(numbers), 2 * numbers)
    whole = maco.allgather(numbers + maco.get_rank())
    assert torch.equal(whole, torch.stack([numbers, numbers + 1]))
    assert torch.equal(maco.reduce_scatter(whole), 2 * whole[maco.get_rank() : maco.get_rank() + 1])
    with config.patch(comm_buffer_size=64), pytest.raises(maco.GraphError, match="comm_buffer_bytes"):
        maco.allreduce(numbers)
    return os.getpid()


def test_settings_of_collectives():
    ranks.run(2, with_debug)


def test_reset_behind_init(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    maco.init("gloo")
    try:
        maco.config.set(debug=True)
        maco.config.reset()
        assert maco.config.get("debug") is False
    finally:
        maco.finalize()
