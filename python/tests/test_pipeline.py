"""Pipeline: stages that overlap over microbatches."""

import pickle

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")


def built(w1, w2, calls=None):
    pipeline = maco.Pipeline(num_stages=3)

    @pipeline.stage(2)
    def last(x):
        return x @ w2

    @pipeline.stage(0)
    def first(x):
        if calls is not None:
            calls.append(x.shape[0])
        return torch.relu(x @ w1)

    @pipeline.stage(1)
    def reduce(x):
        return maco.allreduce(x)

    return pipeline


@pytest.mark.parametrize("microbatches", [None, 1, 2, 5, 40])
def test_the_result_is_that_of_the_stages(microbatches):
    torch.manual_seed(0)
    x, w1, w2 = torch.randn(8, 16), torch.randn(16, 16), torch.randn(16, 4)
    calls = []
    pipeline = built(w1, w2, calls)
    torch.testing.assert_close(pipeline(x, microbatches), torch.relu(x @ w1) @ w2, rtol=1e-4, atol=1e-4)
    wanted = {None: [3, 3, 2], 1: [8], 2: [4, 4], 5: [2, 2, 2, 1, 1], 40: [1] * 8}[microbatches]
    assert calls == wanted and pipeline._recorder.launches == 1


def test_tensors_of_few_rows():
    w = torch.ones(4, 4)
    pipeline = maco.Pipeline(2)
    pipeline.stage(0)(lambda x: x @ w)
    pipeline.stage(1)(lambda x: x + 1)
    assert pipeline(torch.ones(1, 4)).shape == (1, 4)
    assert pipeline(torch.ones(0, 4)).shape == (0, 4)
    assert pipeline(torch.ones(3, 4, dtype=torch.float16).float(), microbatches=2).tolist() == [[5.0] * 4] * 3
    whole = maco.Pipeline(1)
    whole.stage(0)(lambda x: x * 2)
    assert whole(torch.arange(5)).tolist() == [0, 2, 4, 6, 8]


def test_gradients():
    torch.manual_seed(0)
    x, w1, w2 = torch.randn(6, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True), torch.randn(8, 2)
    built(w1, w2)(x, 2).sum().backward()
    mine = x.grad.clone(), w1.grad.clone()
    x.grad = w1.grad = None
    (torch.relu(x @ w1) @ w2).sum().backward()
    torch.testing.assert_close(mine[0], x.grad)
    torch.testing.assert_close(mine[1], w1.grad)


def test_what_a_stage_raises_is_raised():
    pipeline = maco.Pipeline(2)
    pipeline.stage(0)(lambda x: x + 1)

    @pipeline.stage(1)
    def fails(x):
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            pipeline(torch.ones(4, 2))


def test_wrong_pipelines_are_refused():
    pipeline = maco.Pipeline(2)
    pipeline.stage(0)(lambda x: x)
    with pytest.raises(maco.Error, match="twice"):
        pipeline.stage(0)(lambda x: x)
    with pytest.raises(maco.Error, match="no stage 2"):
        pipeline.stage(2)
    with pytest.raises(maco.Error, match="no stage 1"):
        pipeline(torch.ones(2))
    for wrong in ("0", None, True):
        with pytest.raises(TypeError):
            pipeline.stage(wrong)
    with pytest.raises(TypeError):
        pipeline.stage(1)(3)
    pipeline.stage(1)(lambda x: x)
    for wrong in ([1.0], 3, None):
        with pytest.raises(TypeError):
            pipeline(wrong)
    with pytest.raises(maco.Error, match="no axes"):
        pipeline(torch.tensor(1.0))
    for wrong in (0, -1):
        with pytest.raises(maco.Error):
            pipeline(torch.ones(2), microbatches=wrong)
        with pytest.raises(maco.Error):
            maco.Pipeline(wrong)
    with pytest.raises(TypeError):
        pipeline(torch.ones(2), microbatches=1.5)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(pipeline)
    scalar = maco.Pipeline(1)
    scalar.stage(0)(lambda x: x.sum())
    with pytest.raises(maco.Error, match="without axes"):
        scalar(torch.ones(4), microbatches=2)


def on_ranks():
    torch.manual_seed(0)
    world, rank = maco.get_world_size(), maco.get_rank()
    inputs = [torch.randn(7, 16) for _ in range(world)]
    w1, w2 = torch.randn(16, 16), torch.randn(16, 4)
    want = sum(torch.relu(one @ w1) for one in inputs) @ w2
    pipeline = built(w1, w2)
    for microbatches in (None, 2):
        torch.testing.assert_close(pipeline(inputs[rank], microbatches), want, rtol=1e-4, atol=1e-4)
    assert pipeline._recorder.launches == 2
    return True


@pytest.mark.parametrize("world", [2, 3])
def test_ranks(world):
    assert all(ranks.run(world, on_ranks))
