"""Rotary embeddings as people write them: one op of MACO's, with the values of eager PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import maco  # noqa: E402


def half(x, cos, sin):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return x * cos + torch.cat((-b, a), -1) * sin


def heads_first(x, cos, sin):
    return half(x, cos.unsqueeze(1), sin.unsqueeze(1))


def rows_first(x, cos, sin):
    return half(x, cos.unsqueeze(2), sin.unsqueeze(2))


def widened(x, cos, sin):
    return half(x.float(), cos.unsqueeze(1).float(), sin.unsqueeze(1).float()).to(x.dtype)


def by_chunks(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def by_split(x, cos, sin):
    a, b = torch.split(x, [x.shape[-1] // 2] * 2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def other_way(x, cos, sin):
    d = x.shape[-1] // 2
    a, b = x[..., :d], x[..., d:]
    return torch.cat([a * cos + b * sin, a * (-sin) + b * cos], 3).to(x.dtype)


def every_two(x, cos, sin):
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cos + turned * sin


def pairs(x, cos, sin):
    wide = x.float().reshape(*x.shape[:-1], -1, 2)
    a, b = wide[..., 0], wide[..., 1]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(3).type_as(x)


def unbound(x, cos, sin):
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


B, H, T, D = 2, 3, 5, 8
FULL, HALVES = (B, T, D), (T, D // 2)
WAYS = [
    (heads_first, FULL),
    (rows_first, FULL),
    (widened, FULL),
    (half, (T, D)),
    (half, (1, 1, 1, D)),
    (by_chunks, HALVES),
    (by_split, (B, 1, T, D // 2)),
    (other_way, HALVES),
    (every_two, (1, 1, T, D)),
    (pairs, HALVES),
    (unbound, HALVES),
]


def tables(shape, dtype=torch.float32):
    angles = torch.rand(shape) * 6
    return angles.cos().to(dtype), angles.sin().to(dtype)


def compiled(function, *args):
    """What MACO gives, the graphs it has, and what is left to torch."""
    report = maco.explain(function, *args)
    with torch.no_grad():
        return maco.compile(function)(*args), "".join(report.graphs), report


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_way_is_one_op(dtype):
    args = [((B, T, H, D) if way is rows_first else (B, H, T, D), shape) for way, shape in WAYS]
    args = [(torch.randn(x).to(dtype), *tables(shape, dtype)) for x, shape in args]

    def function(*args):
        return [way(*one) for (way, _), one in zip(WAYS, args, strict=True)]

    every, graph, report = compiled(function, *args)
    bound = 1e-5 if dtype is torch.float32 else 2e-2
    for (way, shape), (x, cos, sin), found in zip(WAYS, args, every, strict=True):
        want = way(x.float(), cos.float(), sin.float())
        assert found.dtype == dtype and found.shape == x.shape
        torch.testing.assert_close(found.float(), want, rtol=bound, atol=bound, msg=f"{way.__name__} {shape}")
    assert graph.count("= rope(") == len(WAYS) and "concat" not in graph, graph
    assert not report.fallbacks


def test_queries_that_are_transposed_views_stay_where_they_are():
    def function(x, w, cos, sin):
        q = (x @ w).view(1, T, H, D).transpose(1, 2)
        return heads_first(q, cos, sin).transpose(1, 2).reshape(1, T, H * D)

    args = (torch.randn(1, T, 16), torch.randn(16, H * D), *tables((1, T, D)))
    found, graph, _ = compiled(function, *args)
    torch.testing.assert_close(found, function(*args), rtol=1e-4, atol=1e-4)
    assert "rope(" in graph and "transpose" not in graph, graph


@pytest.mark.parametrize(("at", "dtype"), [([3], torch.int64), ([-1], torch.int32), ([7, 0, -2, 7, 1], torch.int64)], ids=str)
def test_rows_of_tables_by_number(at, dtype):
    at = torch.tensor(at, dtype=dtype)
    cos, sin = tables((9, D))

    def function(x, at, cos, sin):
        return half(x, cos[at][:, None], sin[at][:, None])

    args = (torch.randn(len(at), H, D), at, cos, sin)
    found, graph, _ = compiled(function, *args)
    torch.testing.assert_close(found, function(*args))
    assert "rope(" in graph and "embedding" not in graph, graph


def test_row_numbers_of_one_sequence_for_several():
    at = torch.tensor([4, 2, 0, 1, 3])
    cos, sin = tables((9, D))

    def function(x, at, cos, sin):
        return half(x, cos[at], sin[at])

    args = (torch.randn(B, H, T, D), at, cos, sin)
    found, graph, _ = compiled(function, *args)
    torch.testing.assert_close(found, function(*args))
    assert "rope(" in graph, graph


def test_a_number_out_of_the_table_is_an_error():
    cos, sin = tables((9, D))
    function = maco.compile(lambda x, at, cos, sin: half(x, cos[at][:, None], sin[at][:, None]))
    with torch.no_grad():
        for wrong in ([9], [-10], [0, 9]):
            with pytest.raises((maco.Error, IndexError)):
                function(torch.randn(len(wrong), H, D), torch.tensor(wrong), cos, sin)


def test_rows_that_launches_count():
    def function(x, cos, sin):
        return half(x, cos[:, None], sin[:, None])

    ours = maco.compile(function, dynamic=True)
    with torch.no_grad():
        for rows in (3, 7, 2):
            args = (torch.randn(rows, H, D), *tables((rows, D)))
            torch.testing.assert_close(ours(*args), function(*args))


def test_only_part_of_a_head_turns():
    def function(x, cos, sin):
        turned, kept = x[..., :4], x[..., 4:]
        return torch.cat((half(turned, cos, sin), kept), -1)

    args = (torch.randn(B, H, T, D), *tables((T, 4)))
    found, graph, _ = compiled(function, *args)
    torch.testing.assert_close(found, function(*args))
    assert "rope(" in graph, graph


NEARLY = {
    "both plus": lambda x, c, s: x * c + torch.cat((x[..., 4:], x[..., :4]), -1) * s,
    "both minus": lambda x, c, s: x * c + torch.cat((-x[..., 4:], -x[..., :4]), -1) * s,
    "halves in place": lambda x, c, s: x * c + torch.cat((-x[..., :4], x[..., 4:]), -1) * s,
    "other x": lambda x, c, s: x.flip(0) * c + torch.cat((-x[..., 4:], x[..., :4]), -1) * s,
    "uneven": lambda x, c, s: x * c + torch.cat((-x[..., 3:], x[..., :3]), -1) * s,
    "cosines differ": lambda x, c, s: torch.cat(
        (x[..., :4] * c[..., :4] - x[..., 4:] * s[..., :4], x[..., 4:] * c[..., 4:] + x[..., :4] * s[..., :4]), -1
    ),
    "no minus": lambda x, c, s: torch.cat(
        (x[..., :4] * c[..., :4] + x[..., 4:] * s[..., :4], x[..., 4:] * c[..., :4] + x[..., :4] * s[..., :4]), -1
    ),
    "minus cosine": lambda x, c, s: torch.cat(
        (-(x[..., :4] * c[..., :4]) - x[..., 4:] * s[..., :4], x[..., 4:] * c[..., :4] + x[..., :4] * s[..., :4]), -1
    ),
    "by turns and by halves": lambda x, c, s: x * c + torch.stack((-x[..., 4:], x[..., :4]), -1).flatten(-2) * s,
    "alpha": lambda x, c, s: torch.add(x * c, torch.cat((-x[..., 4:], x[..., :4]), -1) * s, alpha=2),
    "subtracted": lambda x, c, s: x * c - torch.cat((-x[..., 4:], x[..., :4]), -1) * s,
    "used twice": lambda x, c, s: (lambda t: (x * c + t * s, t))(torch.cat((-x[..., 4:], x[..., :4]), -1))[0],
}


def test_what_looks_like_it_is_right_too():
    args = (torch.randn(B, H, T, D), *tables((T, D)))

    def function(*args):
        return [one(*args) for one in NEARLY.values()]

    with torch.no_grad():
        for name, found, want in zip(NEARLY, maco.compile(function)(*args), function(*args), strict=True):
            torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5, msg=name)


def test_gradients():
    def function(x, cos, sin):
        return half(x, cos, sin).sin().sum()

    args = (torch.randn(B, H, T, D, requires_grad=True), *tables((T, D)))
    want = torch.autograd.grad(function(*args), args[0])[0]
    found = torch.autograd.grad(maco.compile(function)(*args), args[0])[0]
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
