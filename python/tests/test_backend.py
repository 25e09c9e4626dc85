"""torch.compile with MACO: modules, training, caches, sizes that vary, ranks, options."""

import copy
import pickle
import warnings

import pytest
import ranks

torch = pytest.importorskip("torch")

import maco  # noqa: E402

F = torch.nn.functional
nn = torch.nn


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


class Block(nn.Module):
    """A layer of a transformer, with norms, grouped heads and rotary embeddings."""

    def __init__(self, width=32, heads=4, shared=2):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm, self.behind = nn.RMSNorm(width, eps=1e-5), nn.LayerNorm(width)
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * shared * self.size)
        self.o, self.gate, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 48), nn.Linear(width, 48), nn.Linear(48, width)

    def forward(self, x):
        batch, rows, _ = x.shape
        h = self.norm(x)
        q = self.q(h).view(batch, rows, self.heads, self.size).transpose(1, 2)
        k, v = (one.view(batch, rows, self.shared, self.size).transpose(1, 2) for one in self.kv(h).chunk(2, -1))
        angles = torch.outer(torch.arange(rows).float(), 100.0 ** -(torch.arange(0, self.size, 2).float() / self.size))
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

        def turned(x):
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat([-second, first], -1) * sin

        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, rows, -1))
        h = self.behind(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def same_gradients(first, second, rtol=1e-3, atol=1e-5):
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def test_a_layer_is_one_launch():
    model, x = Block(), torch.randn(1, 6, 32)
    with torch.no_grad():
        report = maco.explain(model, x)
        assert report.launches == 1 and not report.fallbacks
        compiled = torch.compile(model, backend="maco", options={"strict": True})
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        model.down.weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_training_gives_the_same_weights():
    model = nn.Sequential(
        nn.Linear(8, 16), nn.LayerNorm(16), nn.SiLU(), nn.Linear(16, 16), nn.RMSNorm(16, eps=1e-5), nn.ReLU(), nn.Linear(16, 4)
    )
    other = copy.deepcopy(model)
    compiled = maco.compile(model)
    x, y = torch.randn(6, 8), torch.randn(6, 4)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other)]
    for _ in range(3):
        for run, optimizer in zip((compiled, other), optimizers, strict=True):
            optimizer.zero_grad()
            F.mse_loss(run(x), y).backward()
            optimizer.step()
    same_gradients(model, other)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    report = maco.explain(model, x)
    assert not report.fallbacks and report.launches == 1 and report.backward_launches == 1
    assert {row["pass"] for row in report.table} == {"forward", "backward"}


def test_gradients_of_functions_and_choices():
    x, y, mask = torch.randn(6, 8), torch.rand(6, 8) + 0.5, torch.rand(6, 8) > 0.3

    def function(x, y):
        roots = y.sqrt() + y.rsqrt() + y.log() * x.sin() + x.cos() * x.erf() + x / y + 1 / y + y**1.7 + y**-1 + 2**x
        chosen = torch.where(x > 0, x, y) + x.masked_fill(mask, -1.5) + x.clamp(-0.5, 0.5) + torch.maximum(x, y) + x.abs()
        scores = x.masked_fill(mask, float("-inf")).masked_fill(mask.all(-1, keepdim=True), 0.0)
        return F.gelu(roots * 0.1) * y + F.leaky_relu(chosen) + F.log_softmax(roots, -1) + scores.softmax(-1) + F.hardtanh(x - y)

    report = maco.explain(function, x.requires_grad_(), y.requires_grad_())
    assert not report.fallbacks and report.launches == 1 and report.backward_launches == 1, str(report)
    found = []
    for run in (function, maco.compile(function)):
        result = run(x, y)
        found.append((result, *torch.autograd.grad((result * torch.linspace(-1, 1, 8)).sum(), (x, y))))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_training_with_ops_of_torch_between():
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 10))
    other, ids = copy.deepcopy(model), torch.randint(0, 10, (2, 5))
    compiled = maco.compile(model)
    for run in (compiled, other):
        F.cross_entropy(run(ids).view(-1, 10), ids.view(-1)).backward()
    same_gradients(model, other)
    model.train()
    dropped = maco.compile(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)))
    dropped(torch.randn(3, 8)).sum().backward()
    with torch.no_grad():
        dropped.eval()
        assert torch.equal(dropped(torch.ones(3, 8)), dropped(torch.ones(3, 8)))


class Decoder(nn.Module):
    """Attention of one token over a cache that is written in place."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        shape = (1, 2, 16, 4) if how == "heads" else (1, 16, 2, 4)
        self.register_buffer("k", torch.zeros(shape))
        self.register_buffer("v", torch.zeros(shape))
        self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, at):
        rows = x.shape[1]
        q, k, v = (one.view(1, rows, 2, 4) for one in self.qkv(x).chunk(3, -1))
        if self.how == "slice":
            self.k[:, at : at + rows], self.v[:, at : at + rows] = k, v
            keys, values = self.k[:, : at + rows], self.v[:, : at + rows]
        elif self.how == "index":
            self.k[:, at], self.v[:, at] = k, v
            keys, values = self.k, self.v
        elif self.how == "index_copy":
            self.k.index_copy_(1, at, k)
            self.v.index_copy_(1, at, v)
            keys, values = self.k, self.v
        else:
            self.k[:, :, at], self.v[:, :, at] = k.transpose(1, 2), v.transpose(1, 2)
            keys, values = self.k.transpose(1, 2), self.v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
        return self.o(y.transpose(1, 2).reshape(1, rows, 8))


@pytest.mark.parametrize("how", ["slice", "index", "index_copy", "heads"])
def test_caches_are_written_in_place(how):
    model = Decoder(how)
    other = copy.deepcopy(model)
    compiled = maco.compile(model, strict=True)
    places = model.k.data_ptr(), model.v.data_ptr()
    with torch.no_grad():
        for step in (0, 3, 4, 5, 9, 15):
            x = torch.randn(1, 1, 8)
            at = step if how == "slice" else torch.tensor([step])
            torch.testing.assert_close(compiled(x, at), other(x, at), rtol=1e-4, atol=1e-5)
            assert torch.allclose(model.k, other.k, atol=1e-5) and torch.allclose(model.v, other.v, atol=1e-5)
        assert (model.k.data_ptr(), model.v.data_ptr()) == places
        report = maco.explain(model, x, at)
    assert report.launches == 1 and report.graphs[0].count("= kv_append(") == (4 if how == "heads" else 2)


def test_other_changes_in_place_copy_nothing_either():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 32, 2, 8))

        def forward(self, x, at):
            self.rows[:, at] = x
            return self.rows.sum((1, 3))

    model = Rows()
    other = copy.deepcopy(model)
    compiled, place = maco.compile(model), model.rows.data_ptr()
    for at in ([0, 1], [31, 5], [7, 7]):
        x, at = torch.randn(4, 2, 2, 8), torch.tensor(at)
        if at[0] == at[1]:
            x[:, 1] = x[:, 0]
        torch.testing.assert_close(compiled(x, at), other(x, at))
        assert torch.equal(model.rows, other.rows) and model.rows.data_ptr() == place
    ops = [row["op"] for row in maco.explain(model, x, at).table]
    assert "aten.copy_.default" not in ops and "aten.index_put.default" in ops


def test_counters_and_running_means():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.register_buffer("mean", torch.zeros(8))

        def forward(self, x):
            self.calls += 1
            self.mean.lerp_(x.mean(0), 0.1)
            return x - self.mean

    model = Counting()
    other = copy.deepcopy(model)
    compiled = maco.compile(model)
    for _ in range(3):
        x = torch.randn(4, 8)
        torch.testing.assert_close(compiled(x), other(x))
    assert model.calls == 3
    torch.testing.assert_close(model.mean, other.mean)


def test_batches_of_any_size_share_a_kernel():
    from maco.program import _kept

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    compiled = maco.compile(model, strict=True, dynamic=True)
    with torch.no_grad():
        compiled(torch.randn(5, 8))
        before = len(_kept)
        for rows in (5, 2, 7, 31, 32, 9):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        assert len(_kept) == before
        x = torch.randn(100, 8)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        x = torch.randn(1, 8)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
    marked = maco.compile(model, strict=True)
    x = torch.randn(6, 8)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=48)
    with torch.no_grad():
        torch.testing.assert_close(marked(x), model(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(marked(torch.ones(40, 8)), model(torch.ones(40, 8)), rtol=1e-4, atol=1e-5)
    # A size that is known at each call only, in a place where MACO can't have one open.
    odd = maco.compile(lambda x: (x.t() @ x, x.softmax(0), x.sum(1)), dynamic=True)
    for rows in (3, 4, 6):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(odd(x), (x.t() @ x, x.softmax(0), x.sum(1)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
def test_sequences_of_any_length(batch):
    from maco.program import _kept

    model = Block()
    compiled = maco.compile(model)
    x = torch.randn(batch, 9, 32)
    torch._dynamo.mark_dynamic(x, 1, min=2, max=16)
    with torch.no_grad():
        compiled(x)
        before = len(_kept)
        for rows in (3, 5, 16):
            x = torch.randn(batch, rows, 32)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
        assert len(_kept) == before


def test_training_with_batches_of_any_size():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    other = copy.deepcopy(model)
    compiled = maco.compile(model, dynamic=True)
    for rows in (4, 6):
        x = torch.randn(rows, 8)
        for run in (compiled, other):
            run(x).square().sum().backward()
    same_gradients(model, other)


# ---- options, errors, names


def test_strict_errors_name_op_line_and_reason():
    @maco.compile(strict=True)
    def function(x):
        return torch.tan(x) + 1

    for _ in range(2):
        with pytest.raises(maco.Error, match=rf"aten\.tan\.default' at {__file__}:\d+ .*no such op"):
            function(torch.randn(3))
    # Of the backward pass, where that runs.
    trained = maco.compile(lambda x: F.embedding(torch.tensor([0, 1]), x) * 2, strict=True)
    result = trained(torch.randn(3, 4, requires_grad=True))
    with pytest.raises(maco.Error, match="embedding_dense_backward"):
        result.sum().backward()


def test_options_are_checked():
    x = torch.randn(3)
    with pytest.raises(maco.Error, match="no option 'strct'; did you mean 'strict'"):
        maco.compile(lambda x: x, strct=True)
    with pytest.raises(maco.Error, match="no option 'strct'"):
        torch.compile(lambda x: x + 1, backend="maco", options={"strct": True})(x)
    with pytest.raises(maco.Error, match="did you mean 'aggressive'"):
        maco.compile(lambda x: x, overlap="agressive")
    with pytest.raises(TypeError, match="strict"):
        maco.compile(lambda x: x, strict="yes")
    with pytest.raises(TypeError, match="^'strict' is True or False, not 'yes'"):
        torch.compile(lambda x: x + 2, backend="maco", options={"strict": "yes"})(x)
    with pytest.raises(maco.Error, match="no option 'mode'; .*t is one of 'strict'"):
        maco.compile(lambda x: x, mode="reduce-overhead")
    with pytest.raises(maco.Error, match="at least 1"):
        maco.compile(lambda x: x, min_ops=0)
    with pytest.raises(TypeError, match="module, a function"):
        maco.compile(3)
    with pytest.raises(TypeError, match="not the class"):
        maco.compile(Block)
    run = torch.compile(lambda x: x + 1, backend="maco", options={"overlap": False, "min_ops": 2, "sm_roles": {"compute": 6, "comm": 2}})
    assert torch.equal(run(x), x + 1)


def test_what_is_compiled_cannot_be_pickled_but_copied():
    model = nn.Linear(4, 4)
    compiled, function = maco.compile(model), maco.compile(lambda x: x + 1)
    for one in (compiled, function):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(one)
    assert compiled.state_dict().keys() == {"_orig_mod.weight", "_orig_mod.bias"}
    again = copy.deepcopy(compiled)
    again.weight.data.zero_()
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(again(x), model.bias.expand(2, 4))


def test_graph_breaks_and_exceptions():
    def function(x, stop):
        y = x * 2
        torch._dynamo.graph_break()
        if stop:
            raise KeyError("the user's")
        return y + 1

    x = torch.randn(3)
    report = maco.explain(function, x, False)
    assert len({row["graph"] for row in report.table}) == 2 and report.breaks and "break between graphs" in str(report)
    compiled = maco.compile(function)
    torch.testing.assert_close(compiled(x, False), x * 2 + 1)
    with pytest.raises(KeyError, match="the user's"):
        compiled(x, True)
    torch.testing.assert_close(compiled(x, False), x * 2 + 1)


def test_methods_and_decorators():
    class Thing:
        factor = 3

        @maco.compile
        def scaled(self, x):
            """Scales."""
            return x * self.factor

    assert Thing.scaled.__doc__ == "Scales."
    assert torch.equal(Thing().scaled(torch.ones(2)), torch.full((2,), 3.0))


def test_the_name_is_registered_once(python):
    text = """
import {}
import torch, maco
assert "maco" in torch._dynamo.list_backends()
run = torch.compile(lambda x: x * 2, backend="maco")
assert run(torch.ones(3)).tolist() == [2, 2, 2]
import maco.backend
maco.backend.register()
maco.backend.register()
assert maco.compile(lambda x: x * 3)(torch.ones(3)).tolist() == [3, 3, 3]
assert torch.compile(lambda x: x * 4, backend="maco")(torch.ones(3)).tolist() == [4, 4, 4]
"""
    for first in ("maco", "torch._dynamo"):
        done = python(text.format(first))
        assert done.returncode == 0, done.stderr


def test_giving_up_is_said_once():
    compiled = maco.compile(lambda x, n: x * n, dynamic=False)
    with pytest.warns(UserWarning, match="compiled 8 times") as seen:
        for n in range(20):
            compiled(torch.ones(3), n + 2)
    assert sum("compiled 8 times" in str(one.message) for one in seen) == 1


# ---- ranks


def _collectives(world):
    torch.manual_seed(0)
    rank = maco.get_rank()
    x, w = torch.randn(4, 8), torch.randn(8, 8) + rank
    ops = torch.ops.maco

    def function(x, w):
        y = maco.allreduce(x @ w)
        parts = torch.cat([y] * world)
        gathered = maco.allgather(y[:2])
        return (
            torch.relu(y),
            gathered,
            ops.reduce_scatter(parts, "mean", "", ""),
            ops.all_to_all(parts, "", ""),
            ops.broadcast(x + w.sum(), 1, "", ""),
        )

    w.requires_grad_()
    results = []
    for run in (maco.compile(function, strict=True), function):
        w.grad = None
        out = run(x, w)
        sum(one.sum() for one in out).backward()
        results.append([*out, w.grad])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return maco.explain(function, x, w).launches


def test_collectives_forward_and_backward():
    assert ranks.run(2, _collectives, 2) == [1, 1]


def _functional(world):
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    dist.init_process_group("gloo")
    x = torch.randn(2 * world, 8) + dist.get_rank()

    def function(x):
        y = x * 2
        dist.all_reduce(y)
        z = functional.all_gather_tensor(y, 0, dist.group.WORLD)
        return torch.relu(y) + z[: 2 * world], functional.reduce_scatter_tensor(z, "avg", 0, dist.group.WORLD)

    with torch.no_grad():
        for got, want in zip(maco.compile(function, strict=True)(x), function(x), strict=True):
            torch.testing.assert_close(got, want)
    report = maco.explain(function, x)
    # Of two groups in one graph MACO runs the collectives of that of all ranks.
    parts = [dist.new_group([0, 1]), dist.new_group([2])]
    mine = parts[dist.get_rank() // 2]

    def mixed(x):
        y = x * 2
        dist.all_reduce(y, group=mine)
        z = y + 1
        dist.all_reduce(z)
        return z * 0.5

    def sub(x):
        y = x + 1
        dist.all_reduce(y, group=mine, op=dist.ReduceOp.MAX)
        return y * 2

    with torch.no_grad():
        torch.testing.assert_close(maco.compile(mixed)(x), mixed(x))
        torch.testing.assert_close(maco.compile(sub, strict=True)(x), sub(x))
    assert any(row["reason"].startswith("a collective of another group") for row in maco.explain(mixed, x).fallbacks)
    dist.destroy_process_group()
    return report.launches, len(report.fallbacks)


def test_collectives_of_torch_distributed():
    assert ranks.run(3, _functional, 3) == [(1, 0)] * 3


def _own_constants(world):
    """Each rank takes its part of a weight, as its own rank says."""
    rank = maco.get_rank()
    torch.manual_seed(0)
    x, w = torch.randn(3, 8), torch.randn(8, 5)
    part = 8 // world
    mine = slice(rank * part, (rank + 1) * part)
    compiled = maco.compile(lambda x, w: maco.allreduce(x[:, mine] @ w[mine]).relu() * 2, strict=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.testing.assert_close(compiled(x, w), (x @ w).relu() * 2)
        torch.testing.assert_close(compiled(x * 2, w), (x * 2 @ w).relu() * 2)
    return any("kernels of their own" in str(one.message) for one in seen)


def test_constants_of_each_rank():
    assert ranks.run(2, _own_constants, 2) == [True, True]


def _differing(world, how):
    rank = maco.get_rank()
    group = maco.groups.default()
    group.timeout, group.launch_timeout = 5, 5
    rows = 4 + rank
    run = maco.compile(lambda x: maco.allreduce(x * 2), dynamic=False)
    if how == "later":
        run(torch.ones(4, 8))
    try:
        run(torch.ones(rows, 8))
    except maco.Error as error:
        return type(error).__name__, str(error)
    return "nothing", ""


def test_ranks_that_differ_end_with_an_error():
    for kind, text in ranks.run(2, _differing, 2, "at once"):
        assert kind == "MismatchError" and "rank 1" in text
    for kind, text in ranks.run(2, _differing, 2, "later"):
        assert kind == "MismatchError" and "rank 1 compiles a graph 'fx' again, since x is float32[5, 8] and was float32[4, 8]" in text


def _uneven(world):
    """Batches of which the last is smaller on one rank: what calls gave, and what was warned of."""
    rank = maco.get_rank()
    w = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    step = torch.compile(lambda x, w: maco.allreduce((x @ w).sum(0)).relu(), backend="maco")
    good = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for sizes in ((8, 8), (8, 5), (8, 8), (5, 8), (8, 8)):
            found = step(torch.ones(sizes[rank], 16), w)
            good.append(torch.allclose(found, (sum(sizes) * w.sum(0)).relu(), atol=1e-4))
    return good, [str(one.message) for one in seen]


def test_a_rank_with_an_uneven_batch():
    for good, warned in ranks.run(2, _uneven, 2):
        assert good == [True] * 5
        words = "rank 0 runs 'fx', rank 1 compiles a graph 'fx' again, since x is float32[5, 16] and was float32[8, 16]. Their collectives"
        assert words in warned[0] and "drop_last=True" in warned[0] and "mark_dynamic" in warned[0]


def _uneven_results(world):
    rank = maco.get_rank()
    step = maco.compile(lambda x: maco.allreduce(x * 2))
    step(torch.ones(8, 16))
    with pytest.raises(maco.MismatchError, match="again, since x is .*one by one their collectives differ, too: .*drop_last"):
        step(torch.ones(8 - rank, 16))
    return torch.equal(step(torch.ones(8, 16)), torch.full((8, 16), 4.0))


def test_even_batches_work_again_behind_uneven_ones():
    assert ranks.run(2, _uneven_results, 2) == [True, True]


def _functions_of_one_name(world):
    rank = maco.get_rank()
    group = maco.groups.default()
    first, second = maco.compile(lambda x: maco.allreduce(x * 2)), maco.compile(lambda x: maco.allreduce(x * 3).exp())
    x = torch.ones(8)
    for one in (first, second):
        one(x)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        (first if rank == 0 else second)(x)
    group.check_usable()
    return [str(one.message) for one in seen]


def test_ranks_that_run_other_functions_are_told():
    for warned in ranks.run(2, _functions_of_one_name, 2):
        assert "rank 0 runs 'fx' (" in warned[0]


def reasons(function, *inputs):
    return {row["op"]: row["reason"] for row in maco.explain(function, *inputs).fallbacks}


def test_why_attention_is_left_to_torch():
    q = torch.randn(1, 2, 8, 16)
    masked = reasons(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), q, torch.randn(8, 8))
    assert any("a mask that doesn't just say how far rows see" in one for one in masked.values())
    training = reasons(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q.requires_grad_())
    assert any("whose gradient is wanted" in one for one in training.values())
    assert any("gradient of attention" in one for one in training.values())
    assert "MACO has no random numbers" in reasons(lambda x: torch.rand_like(x), torch.ones(4)).values()


def test_explain_takes_the_options_of_what_was_compiled():
    def layer(x, w):
        return torch.tan(x * 2)

    x, w = torch.ones(4, 4), torch.ones(4, 4)
    assert maco.explain(layer, x, w).launches == 1
    for compiled in (maco.compile(layer, min_ops=3), maco.optimize(layer, min_ops=3)):
        assert "min_ops" in str(maco.explain(compiled, x, w))
    module = nn.Sequential(nn.ReLU())
    assert "min_ops" in str(maco.explain(maco.compile(module, min_ops=3), x))
    assert maco.explain(maco.compile(layer, strict=True), x, w).fallbacks


def test_strict_takes_tensors_without_elements():
    w = torch.ones(16, 4)
    assert maco.compile(lambda x: torch.relu(x @ w) * 2, strict=True)(torch.zeros(0, 16)).shape == (0, 4)


def test_the_option_timeout():
    made = []
    x = torch.ones(4)
    from maco import program

    before = program.Program.__init__
    try:
        program.Program.__init__ = lambda self, *args, **named: (made.append(named.get("timeout")), before(self, *args, **named))[1]
        torch.compile(lambda x: x * 7, backend="maco", options={"timeout": 3})(x)
    finally:
        program.Program.__init__ = before
    assert made == [3]
    for wrong, kind in (("3", TypeError), (True, TypeError), (0, maco.Error), (1e9, maco.Error)):
        with pytest.raises(kind, match="'timeout'"):
            maco.compile(lambda x: x, timeout=wrong)


def test_a_graph_has_no_use_for_options_of_tracing():
    graph = maco.Graph("g")
    graph.output("y", graph.relu(graph.input("x", "f32", [4])))
    for told in ({"fullgraph": True}, {"dynamic": True}, {"dynamic": False}):
        with pytest.raises(maco.Error, match=f"'{next(iter(told))}'"):
            maco.compile(graph, **told)


def test_weights_that_come_to_lie_otherwise():
    model, x = torch.nn.Linear(32, 32), torch.randn(4, 32)
    fast = maco.compile(model)
    places = {
        "as it was": model.weight.data,
        "turned": torch.randn(32, 32).t(),
        "every other row": torch.randn(64, 32)[::2],
        "4 bytes further": torch.randn(32 * 32 + 1)[1:].view(32, 32),
        "elsewhere": torch.randn(32, 32),
    }
    inputs = [x, torch.randn(4, 64)[:, ::2], torch.randn(32, 4).t(), torch.randn(4 * 32 + 1)[1:].view(4, 32)]
    with torch.no_grad():
        for name, weight in places.items():
            model.weight.data = weight
            for one in inputs:
                torch.testing.assert_close(fast(one), model(one), rtol=1e-4, atol=1e-5, msg=name)
        model.bfloat16()
        torch.testing.assert_close(fast(x.bfloat16()), model(x.bfloat16()), rtol=2e-2, atol=2e-2)
