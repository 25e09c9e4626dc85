"""Traced graphs: every op that is lowered against eager, and how graphs are cut."""

import pytest

torch = pytest.importorskip("torch")

import random_modules  # noqa: E402
import ranks  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import maco  # noqa: E402
from maco.fx import Options, compile_fx  # noqa: E402

F = torch.nn.functional
aten = torch.ops.aten


def traced(function, *inputs, mode="fake"):
    return make_fx(function, tracing_mode=mode)(*inputs)


def compiled(function, *inputs, static=(), **options):
    return compile_fx(traced(function, *inputs), inputs, options=Options(**options), static=static)


def agree(function, *inputs, launches=None, fallbacks=(), **options):
    """Compiles, compares with eager, and gives what was compiled."""
    made = compiled(function, *inputs, **options)
    want = function(*inputs)
    want = list(want) if isinstance(want, (list, tuple)) else [want]
    for _ in range(2):
        got = made(*inputs)
        assert len(got) == len(want)
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert g.shape == w.shape and g.dtype == w.dtype and g.device == w.device, f"result {i}"
            assert g.stride() == w.stride() or w.numel() < 2, f"result {i} has strides {g.stride()}, not {w.stride()}"
            if w.is_floating_point():
                bound = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}.get(w.dtype, 1e-6)
                torch.testing.assert_close(g, w, rtol=10 * bound, atol=bound, msg=lambda text, i=i: f"result {i}: {text}")
            else:
                assert torch.equal(g, w), f"result {i}"
    assert sorted({row["op"] for row in made.report.fallbacks}) == sorted(fallbacks), str(made.report)
    if launches is not None:
        assert made.report.launches == launches
    return made


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# ---- ops


def test_elementwise():
    x, y, z, s, r = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8), torch.randn(()), torch.randn(4, 1)
    h = x.bfloat16()
    i = torch.arange(32, dtype=torch.int32).reshape(4, 8) - 7
    u = torch.arange(200, 232, dtype=torch.uint8).reshape(4, 8)
    m = torch.rand(4, 8) > 0.5

    def run(x, y, z, s, h, i, u, r, m):
        return (
            x + y, x - z, z - x, x * s, s - x, x + 2, 3 - x, x * h, h + h, h * 2.5, x + True, x.add(y, alpha=2), y.sub(x, alpha=0.5),
            torch.rsub(x, y), torch.maximum(x, z), torch.minimum(x, r), x / 3, x / -0.25, -x, x * r, r * x, r - x, r + z, r * z,
            i + i, i * 3, i - 2, i.abs(), i.relu(), -i, u + u, u * u, u + 100, x + i, i * 0.5, x * m, m.float(),
            torch.ones(4, 8) - m.float(),
            x.clamp(-1, 0.5), x.clamp_min(0), x.clamp_max(0), x.clamp(min=-0.1), F.hardtanh(x), F.relu6(x), F.leaky_relu(x, 0.1),
        )  # fmt: skip

    agree(run, x, y, z, s, h, i, u, r, m, launches=1)

    def more(x, y, h, i, u):
        return (
            x.relu(), x.sigmoid(), x.tanh(), x.exp(), F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x) * y, y * F.silu(x),
            F.gelu(x) * y, h.relu(), F.silu(h) * h, x**2, x**3, x**4, x**1, x.square(), x.abs(), h.abs(), h**3,
            h.float(), x.half(), x.bfloat16(), x.to(torch.int32), i.float(), u.float(), i.to(torch.uint8), x.clone(), x.to(torch.float32),
            F.hardsigmoid(x), F.hardswish(x), torch.lerp(x, y, 0.3), torch.addcmul(x, y, x, value=0.5),
        )  # fmt: skip

    from maco.backend import _decompositions

    gm = make_fx(more, tracing_mode="fake", decomposition_table=dict(_decompositions()))(x, y, h, i, u)
    made = compile_fx(gm, (x, y, h, i, u))
    assert not made.report.fallbacks
    for g, w in zip(made(x, y, h, i, u), more(x, y, h, i, u), strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(
            g, w, rtol=2e-2 if w.dtype in (torch.bfloat16, torch.half) else 1e-4, atol=1e-2 if w.dtype is torch.bfloat16 else 1e-5
        )


def test_functions_and_quotients():
    x, y, z, r, s = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8), torch.randn(4, 1), torch.randn(())
    p, h = x.abs() + 0.1, torch.rand(4, 8).bfloat16() + 0.5
    i = torch.arange(1, 33, dtype=torch.int32).reshape(4, 8)

    def run(x, y, z, r, s, p, h, i):
        return (
            -x, x.abs(), p.sqrt(), p.rsqrt(), p.log(), x.sin(), x.cos(), x.erf(), h.sqrt(), h.log(), h.rsqrt(), x.reciprocal(), -i,
            (-i).abs(), i.sqrt(), x / y, x / z, x / r, r / x, z / x, x / s, s / x, 1 / x, 0.5 / x, x / 3, x / 0, i / 3, i / i, 7 / i,
            h / h[:1], x / h, x.t() / y.t(), (x * 1e6).sin(), (x * 1e30).cos(), torch.div(x, y, rounding_mode=None),
            p**0.5, p**-0.5, p**-1, p**1.7, p**y, p**z, p**r, 2**x, x**2, x**3, x**5, h**3, h**1.5, i**2, x**0, torch.tensor(2.0) ** x,
            x.clamp(y), x.clamp(max=0.25), i.clamp(3, 9), i.clamp(min=2.5), h.clamp(0.7, 0.6), x.clamp(y, y + 1),
            F.gelu(x) * y, F.gelu(x, approximate="tanh") * y, F.gelu(h) * h, x.sign(), i.sign(), x.sgn(),
            x.log_softmax(-1), x.log_softmax(0), h.log_softmax(-1), F.leaky_relu(x, -0.5),
        )  # fmt: skip

    agree(run, x, y, z, r, s, p, h, i, launches=1)
    odd = torch.tensor([0.0, -0.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38])
    made = compiled(
        lambda x: (x.sqrt(), x.rsqrt(), x.log(), x.reciprocal(), 2 / x, x**0.5, x**2.5, x.abs(), -x, x.clamp(0, 1), x.erf()), odd
    )
    want = (odd.sqrt(), odd.rsqrt(), odd.log(), odd.reciprocal(), 2 / odd, odd**0.5, odd**2.5, odd.abs(), -odd, odd.clamp(0, 1), odd.erf())
    for g, w in zip(made(odd), want, strict=True):
        torch.testing.assert_close(g, w, equal_nan=True)
    assert not made.report.fallbacks
    assert "geglu" in compiled(lambda x, y: F.gelu(x) * y, x, y).report.graphs[0]
    agree(lambda x: torch.div(x, 3, rounding_mode="floor"), x, fallbacks=["aten.div.Tensor_mode"])


def test_comparisons_and_choices():
    x, y, z, r = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8), torch.randn(4, 1)
    x[0, 0], y[1] = float("nan"), x[1]
    h = x.bfloat16()
    i = torch.arange(32, dtype=torch.int32).reshape(4, 8) - 7
    u = torch.arange(0, 32, dtype=torch.uint8).reshape(4, 8)
    m, n = torch.rand(4, 8) > 0.5, torch.rand(8) > 0.5
    inf = float("inf")

    def run(x, y, z, r, h, i, u, m, n):
        return (
            x == y, x != y, x < y, x <= z, x > r, x >= 0, z > x, r <= x, h == 0.1, h < x, i == i.t().t(), i > 3, i <= 2.5, i < x,
            u == 3, u >= u[:1], m == n, m == 0, m != m, x.t() > y.t(), x[:, :2] > 0, torch.isnan(x), x.bool(), i.bool(), u.bool(),
            m.clone(), ~m, m & n, m | n,
            m ^ n, m.logical_not(), x.logical_not(), x.logical_and(i), m.logical_or(x > 0), torch.logical_xor(m, n),
            torch.where(m, x, y), torch.where(m, x, 0.0), torch.where(m, 2.0, x), torch.where(m, 1.0, -1.0), torch.where(n, x, z),
            torch.where(m, h, x), torch.where(m, i, 3), torch.where(m, u, u * 2), torch.where(m, n, m), torch.where(m, x, inf),
            torch.where(m, -inf, x), torch.where(m, inf, -inf), torch.where(r > 0, z, r), torch.where(m, i, x), torch.where(m, 3, i),
            x.masked_fill(m, -inf), x.masked_fill(n, 0.5), h.masked_fill(m, 1e-3), i.masked_fill(m, 9), x.masked_fill(m, r[0, 0]),
            m.any(), m.all(-1), m.any(0), (x > 0).float().sum(), m[:, 1:].contiguous(), torch.cat([m, m]), m.t().contiguous(),
            m[:, None].expand(4, 3, 8) & (y > 0)[:, None],
        )  # fmt: skip

    made = compiled(run, x, y, z, r, h, i, u, m, n)
    assert not made.report.fallbacks, str(made.report)
    assert made.report.launches == 1
    for at, (g, w) in enumerate(zip(made(x, y, z, r, h, i, u, m, n), run(x, y, z, r, h, i, u, m, n), strict=True)):
        assert g.dtype == w.dtype and g.shape == w.shape, f"result {at}"
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True, msg=lambda text, at=at: f"result {at}: {text}")
    agree(lambda u: u & u, u, fallbacks=["aten.bitwise_and.Tensor"])


def test_products_and_rows():
    a, w, v = torch.randn(2, 3, 8), torch.randn(8, 5), torch.randn(5)
    i = torch.randint(-4, 4, (3, 8), dtype=torch.int32)

    def run(a, w, v, i):
        return (
            a @ w, a[0] @ w + v, F.linear(a, w.t(), v), F.linear(a, w.t().contiguous()), a.view(6, 8).t() @ a.view(6, 8),
            torch.addmm(v, a[0], w, beta=0.5, alpha=2), torch.addmm(a[0, :, :5], a[0], w), torch.addmm(v[:1], a[0], w), a[0, 0] @ w,
            a[0, 0].dot(a[0, 1]), a[0] @ a[0, 0], torch.bmm(a[:1], a[:1].transpose(1, 2)), i @ i.t(), a.bfloat16() @ w.bfloat16(),
            a.sum(), a.sum(0), a.sum(1), a.sum((0, 2)), a.sum(-1, keepdim=True), a.mean(), a.mean(-1, keepdim=True), a.mean((0, 1)),
            a.amax(1), a.amax((0, 2), keepdim=True), a.argmax(-1), a.argmax(), a.argmax(1, keepdim=True), a.max(-1)[0], a.max(1)[1],
            a.softmax(0), a.softmax(-1), a.softmax(1), v.softmax(0), a.bfloat16().sum(-1), a.half().mean(0), a.exp(),
            F.layer_norm(a, (8,)), F.layer_norm(a, (3, 8)), F.layer_norm(a, (8,), w[:, 0], w[:, 1], 1e-3),
            F.rms_norm(a, (8,), w[:, 2], 1e-3), F.rms_norm(a, (8,)), F.rms_norm(a.bfloat16(), (8,), w[:, 2].bfloat16(), 1e-3),
            F.embedding(torch.tensor([[0, 2], [1, 1]]), w), w[torch.tensor([0, -1, 2])], w.index_select(0, torch.tensor([3, 3])),
        )  # fmt: skip

    agree(run, a, w, v, i, launches=1)


def test_negative_rows():
    w, i = torch.randn(5, 4), torch.tensor([0, 1, 4], dtype=torch.int32)
    agree(lambda w, i: (w[i - 1] * 2,), w, i, launches=1)
    agree(lambda w: (w[w.argmax(0)] * 2,), w, launches=1)
    with pytest.raises(IndexError):
        w.index_select(0, i.long() - 1)
    with pytest.raises(maco.LaunchError, match="index -1 is outside"):
        maco.compile(lambda w, i: w.index_select(0, i))(w, i.long() - 1)


def test_movement():
    q, a = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 8)

    def run(q, a):
        y, z, c = a.clone(), a.clone(), a.clone()
        y[:, 1:3] = a[:, :2] * 2
        z[0] = a[1]
        c[..., 2] = a[..., 3] + 1
        return (
            q.permute(3, 1, 0, 2) * 1, q.permute(3, 1, 0, 2).contiguous(), q.view(2, 3, 2, 2, 8).permute(0, 2, 1, 3, 4).contiguous(),
            q.view(1, 2, 3, 1, 2, 2, 8).sum(-1), q.transpose(1, 2).reshape(2, 4, 24) + 1, a.transpose(1, 2) + 1,
            a.permute(2, 0, 1).reshape(8, 6) + 1,
            q[:, 1] * 2, q[..., ::2] + 1, q[..., -3:-1] * 1, a.chunk(2, -1)[1] * 2, a.split([1, 2], 1)[1] * 2, a.unbind(0)[1] * 2,
            torch.cat([a, a * 2], 1), torch.cat([a[:, :1], a], 1), torch.stack([a, a], 0) * 2, torch.stack([a, a * 2], -1),
            a.repeat(2, 1, 1) * 1,
            a[:, None].expand(2, 4, 3, 8) * 1, a[..., None].expand(2, 3, 8, 2) * 1, a.unsqueeze(1) * q.permute(0, 2, 1, 3), a.flatten() + 1,
            torch.full((2, 3, 8), 2.0) * a, a * torch.ones(3, 1), a + torch.arange(8.0), torch.zeros_like(a) + a, a.new_zeros(3, 8) - a,
            aten.slice_backward(a[:, 1:].contiguous(), [2, 5, 8], 1, 1, 3, 1), aten.select_backward(a[0], [2, 3, 8], 0, 1), y, z, c,
            torch.cat([-a[..., 4:], a[..., :4]], -1), a.view(2, 3, 2, 4).transpose(2, 3).reshape(2, 3, 8) * 1, a.narrow(1, 1, 2) + 1,
        )  # fmt: skip

    agree(run, q, a, launches=1)


def test_attention_is_matched():
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8)

    def written(q, k, v, mask):
        scores = q @ k.transpose(-1, -2) / 8**0.5
        if mask:
            scores = scores + torch.full((5, 5), float("-inf")).triu(1)
        return scores.softmax(-1) @ v

    def run(q, k, v):
        sdpa = F.scaled_dot_product_attention
        mask = torch.ones(5, 5, dtype=torch.bool).tril()
        repeated = k[:, :2, None].expand(2, 2, 2, 5, 8).reshape(2, 4, 5, 8)
        return (
            sdpa(q, k, v), sdpa(q, k, v, is_causal=True, scale=0.3), sdpa(q, k[:, :2], v[:, :2], enable_gqa=True), sdpa(q, repeated, v),
            sdpa(q[:, :, :3], k, v, is_causal=True), sdpa(q, k, v, attn_mask=mask), written(q, k, v, False), written(q, k, v, True),
            sdpa(q, k, v).transpose(1, 2).reshape(2, 5, 32), sdpa(q[0], k[0], v[0]),
        )  # fmt: skip

    made = agree(run, q, k, v, launches=1)
    assert made.report.graphs[0].count("= attention(") == 10


def test_norms_are_matched():
    x, w = torch.randn(2, 3, 16), torch.randn(16)

    def llama(x, w):
        h = x.float()
        return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def gemma(x, w):
        h = x.float()
        return (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * (1.0 + w.float())).type_as(x)

    made = agree(lambda x, w: (llama(x, w), gemma(x, w), llama(x.bfloat16(), w.bfloat16())), x, w, launches=1)
    assert made.report.graphs[0].count("= rmsnorm(") == 3


def test_gradient_ops():
    x, g = torch.randn(3, 8), torch.randn(3, 8)
    w, b = torch.randn(8), torch.randn(8)

    def run(x, g, w, b):
        y, mean, inverse = aten.native_layer_norm(x, [8], w, b, 1e-5)
        return (
            aten.threshold_backward(g, x, 0), aten.sigmoid_backward(g, x.sigmoid()), aten.tanh_backward(g, x.tanh()),
            aten.silu_backward(g, x),
            aten._softmax_backward_data(g, x.softmax(-1), -1, torch.float32),
            aten._softmax_backward_data(g, x.softmax(0), 0, torch.float32),
            aten.gelu_backward(g, x, approximate="tanh"), aten.gelu_backward(g, x), aten.leaky_relu_backward(g, x, 0.3, False),
            aten.hardtanh_backward(g, x, -0.5, 0.25), aten._log_softmax_backward_data(g, x.log_softmax(-1), -1, torch.float32),
            aten._log_softmax_backward_data(g, x.log_softmax(0), 0, torch.float32), aten.threshold_backward(g, x, 0.5), y, mean, inverse,
            *aten.native_layer_norm_backward(g, x, [8], mean, inverse, w, b, [True, True, True]),
        )  # fmt: skip

    agree(run, x, g, w, b, launches=1)
    # What isn't a number passes in either direction as torch has it.
    odd = torch.tensor([float("inf"), float("-inf"), 1.0, -1.0, 0.0, 1e-40, -1e-40, 3e38])
    agree(lambda g, x: aten.threshold_backward(g, x, 0), torch.full((8,), float("inf")), odd)


# ---- how graphs are cut


def test_one_launch_between_ops_of_torch():
    x, w = torch.randn(4, 8), torch.randn(8, 8)

    def run(x, w):
        a = torch.tan(x @ w)  # tan is torch's
        b = torch.relu(x @ w.t())  # and this can run beside what is ahead of it
        return (a @ w).relu() + b, torch.atan(x)

    made = agree(run, x, w, launches=2, fallbacks=["aten.atan.default", "aten.tan.default"])
    assert all(row["reason"] == "MACO has no such op" for row in made.report.fallbacks)


def test_views_stay_views():
    x = torch.randn(4, 6)
    made = compiled(lambda x: (x.t(), x[1:, ::2], x.view(2, 12), (x + 1).t()), x)
    out = made(x)
    assert out[0].data_ptr() == x.data_ptr() and out[1].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert torch.equal(out[3], (x + 1).t()) and out[3].stride() == (1, 6)
    assert made.report.launches == 1


def test_results_that_are_inputs_or_come_twice():
    x, y = torch.randn(3, 4), torch.randn(3, 4)

    def run(x, y):
        z = x + y
        c = x.clone()
        return x, z, z, c, x, z.clone()

    out = agree(run, x, y)(x, y)
    assert out[0] is x and out[1] is out[2]
    assert len({t.data_ptr() for t in (x, out[1], out[3], out[5])}) == 4


def test_inputs_of_any_layout():
    base = torch.randn(6, 10)
    odd = torch.randn(65)[1:].view(8, 8)[:6, :8]
    agree(
        lambda a, b, c, d, e: (a + b[:, :6], c * 2, d @ e, a + a.t()),
        base[:, 1:7], odd, base.t(), base[::2, ::3], torch.randn(5, 4).t()[:, :].contiguous(),
    )  # fmt: skip
    # One tensor twice, and views that overlap.
    agree(lambda a, b, c: (a + b, b * c), base, base, base[:1].expand(6, 10))


def test_tensors_without_elements_and_axes():
    x, s = torch.randn(0, 4), torch.randn(())
    agree(lambda x, s: (x + 1, x.sum(), s * 2, s.exp() + 1), x, s, fallbacks=["aten.add.Tensor", "aten.sum.default"])
    agree(lambda x, y: torch.cat([x, y]) + 1, x, torch.randn(3, 4))


def test_dtypes_that_maco_has_not():
    d, i, c = torch.randn(3, 4, dtype=torch.float64), torch.arange(12).reshape(3, 4), torch.randn(3, dtype=torch.complex64)
    made = agree(
        lambda d, i, c, x: (d + 1, i * 2, c * 2, x + 1, x * i), d, i, c, torch.randn(3, 4), fallbacks=["aten.add.Tensor", "aten.mul.Tensor"]
    )
    assert any("float64" in row["reason"] for row in made.report.fallbacks)
    small = torch.randn(4, 8).to(torch.float8_e4m3fn)
    agree(lambda x, w: x @ w.to(torch.float32).t() + w[0, :4].to(torch.float32), torch.randn(3, 8), small, launches=1)
    agree(
        lambda x: (x * 100).to(torch.float8_e5m2).float(), torch.randn(3, 8) * 1e4, fallbacks=["aten._to_copy.default", "aten.mul.Tensor"]
    )
    big = torch.tensor([2**31, 5], dtype=torch.int64)
    agree(lambda i: i + 1, big, fallbacks=["aten.add.Tensor"])


def test_row_numbers_out_of_range():
    table = torch.randn(4, 8)
    made = compiled(lambda t, i: F.embedding(i, t), table, torch.tensor([0, 1]))
    with pytest.raises((maco.LaunchError, IndexError)):
        made(table, torch.tensor([0, 2**32]))
    assert torch.equal(made(table, torch.tensor([3, 2]))[0], table[[3, 2]])
    made = compiled(lambda t, i: t[i], table, torch.tensor([0, 1]))
    assert torch.equal(made(table, torch.tensor([-1, -4]))[0], table[[3, 0]])
    with pytest.raises((maco.LaunchError, IndexError)):
        made(table, torch.tensor([0, -5]))


def test_parameters_are_read_at_each_call():
    x, w = torch.randn(2, 8), torch.randn(8, 8)
    made = compiled(lambda x, w: x @ w.t() + (w * 2)[0], x, w, static=[1])
    assert "param" in made.report.graphs[0]
    torch.testing.assert_close(made(x, w)[0], x @ w.t() + 2 * w[0])
    w.mul_(3)
    torch.testing.assert_close(made(x, w)[0], x @ w.t() + 2 * w[0])
    # As attributes of the module that is traced, too.
    gm = traced(lambda x: x @ (w * 2), x, mode="real")
    made = compile_fx(gm, (x,))
    w.zero_()
    assert made(x)[0].abs().max() == 0


def test_constants_are_computed_once_and_not_given_away():
    def run(x):
        mask = torch.arange(4).float() * 2
        return x + mask, mask, mask.view(2, 2)

    made = agree(run, torch.randn(3, 4))
    out = made(torch.randn(3, 4))
    out[1].fill_(9)
    assert made(torch.zeros(3, 4))[0][0].tolist() == [0, 2, 4, 6]


def test_changes_in_place_are_kept_in_order():
    x, y = torch.randn(3, 4), torch.randn(3, 4)

    def run(x, y):
        z = x * 2
        z.add_(y)
        v = z.view(12)
        v[:4] = 0
        w = z.relu_()
        return w + 1, z

    agree(run, x, y)

    def filled(x, y):
        z = x * 2
        z[0].fill_(y.sum())
        z[1:, 2] = 7
        return z, (x > 0).fill_(True)

    agree(filled, x, y)

    def allocated(x):
        y = torch.empty_like(x)
        y[:2], y[2:] = x[:2] * 2, x[1:2] + 1
        return y, torch.empty(2, 3).fill_(4) + x.new_empty(()).copy_(x.sum())

    agree(allocated, x)

    def change(x, y):
        x.mul_(2)
        y[0] = x[1]
        return x + y

    a, b, c, d = x.clone(), y.clone(), x.clone(), y.clone()
    gm = traced(change, a, b)
    made = compile_fx(gm, (a, b))
    want = change(a, b)
    torch.testing.assert_close(made(c, d)[0], want)
    torch.testing.assert_close(c, a)
    torch.testing.assert_close(d, b)


def test_strict_names_op_and_reason():
    with pytest.raises(maco.Error, match=r"aten\.tan\.default.*MACO has no such op.*and 1 more"):
        compiled(lambda x: torch.tan(x) + torch.atan(x), torch.randn(3), strict=True)
    compiled(lambda x: x + 1, torch.randn(3), strict=True)


def test_small_parts_are_left_to_torch():
    x, w = torch.randn(3, 4), torch.randn(4, 4)
    made = compiled(lambda x, w: (x @ w).tan() + 1, x, w, min_ops=2)
    assert made.report.launches == 1 and "min_ops" in made.report.fallbacks[1]["reason"]
    # What only feeds ops of torch's isn't worth a launch ahead of theirs.
    made = agree(
        lambda x, w: ((x + 1) * 2).tan() @ w, x, w, launches=1, fallbacks=["aten.add.Tensor", "aten.mul.Tensor", "aten.tan.default"]
    )
    assert "only feeds" in made.report.fallbacks[0]["reason"]


def test_settings_reach_the_graph():
    made = compiled(lambda x: x + 1, torch.randn(3, 4), overlap="none", sm_roles={"compute": 6, "comm": 2})
    assert "overlap = " in made.report.graphs[0] and '"compute": 6' in made.report.graphs[0]


def test_report_reads_well():
    made = compiled(lambda x: torch.tan(x @ x.t()) * 2, torch.randn(3, 4))
    text = str(made.report)
    assert "2 ops in 2 launches" in text and "1 op left to torch" in text and "MACO has no such op" in text
    assert made.report.table[0]["runs"] == "maco" and made.report.table[0]["launch"] == 0
    with pytest.raises(TypeError, match="pickle"):
        import pickle

        pickle.dumps(made)


def test_gradients_are_not_lost_silently():
    x = torch.randn(3, requires_grad=True)
    made = compiled(lambda x: x * 2, x.detach())
    with pytest.raises(maco.Error, match="no gradients"):
        made(x)
    with torch.no_grad():
        assert torch.equal(made(x)[0], x * 2)


def test_dry_compiles_nothing():
    made = compile_fx(traced(lambda x: x + 1, torch.randn(3)), (torch.randn(3),), options=Options(dry=True))
    assert made.report.launches == 1 and made.parts[0].program is None


@pytest.mark.parametrize("seed", [3, 11, 21])
def test_random_modules(seed):
    random_modules.check(seed)


def test_random_functions_written_down_and_with_collectives():
    assert random_modules.tried(range(3), "overlap") == []
    assert ranks.run(2, random_modules.tried, range(30, 33), "compile", True) == [[], []]


def test_bounds_masks_and_sums_that_look_like_others():
    hidden = torch.tensor([[False, True], [False, False]])
    q, k, v = (torch.randn(1, 2, 8) for _ in range(3))
    for function, given in (
        (lambda x: x.clamp(min=float("inf")), [torch.randn(4, 8)]),
        (lambda x: x.clamp(max=float("-inf")), [torch.randn(4, 8)]),
        (lambda x: x.clamp(min=float("-inf"), max=1.0), [torch.randn(4, 8)]),
        (lambda x: x.sum(-1, dtype=torch.int32), [torch.randn(4, 8) * 3]),
        (lambda q, k, v: torch.softmax((q @ k.mT).masked_fill(hidden, -2e4) * 1e-4, -1) @ v, [q, k, v]),
        (lambda q, k, v: torch.softmax((q @ k.mT).masked_fill(hidden, -1e9) * 0.5, -1) @ v, [q, k, v]),
    ):
        torch.testing.assert_close(maco.compile(function)(*given), function(*given))
