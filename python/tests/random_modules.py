"""Random functions of torch ops, forward and backward, compiled by MACO and compared with eager.

`python random_modules.py --count N --seed S` tries N of them and says which seeds differ; `--verbose` prints each. `--how overlap` writes
the calls down in `maco.auto_overlap()` in place of compiling them; `--world N` has N ranks, with collectives among the ops.
"""

import argparse
import math
import random
import sys
import traceback
import warnings

import torch
import torch.nn.functional as F

DIMS = (1, 2, 3, 4, 8)
LARGE = (1, 2, 5, 16, 33, 64, 130)
"""Sizes of some cases, so that ops have several tiles."""

ROWS = (6, 3, 9)
"""Sizes of the first axis of inputs whose rows vary, one for each call."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
LARGEST = 1 << 15


def _maco():
    try:
        import maco
    except ImportError:
        from conftest import maco
    return maco


class Case:
    """A function that `seed` decides: `run(*inputs)` gives a tuple, `inputs()` makes operands, always the same.

    Each step is tried in eager as it is made: one that raises isn't taken. `rows`: the first axis of inputs varies, and steps are those
    that work for all of `ROWS`. With `collectives` some steps are collectives of MACO's.
    """

    def __init__(self, seed, collectives=False):
        self.random = random.Random(seed)
        self.seed = seed
        self.dtype = self.random.choice((torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16))
        self.gradients = self.dtype is torch.float32 and self.random.random() < 0.5
        self.rows = self.random.random() < 0.2
        self.zeros = self.random.random() < 0.05
        self.module = self.random.random() < 0.3
        self.autocast = self.dtype is torch.float32 and self.random.random() < 0.05
        self.dims = LARGE if self.random.random() < 0.15 else DIMS
        self.changes = not self.gradients and self.random.random() < 0.3  # inputs in place
        self.specs = []  # of inputs: shape, kind, dtype; a shape has None where rows vary
        self.steps = []  # text and function of the values so far
        self.plain = []  # which values are elements of inputs, not computed
        self.tried = [[] for _ in (ROWS if self.rows else ROWS[:1])]
        makers = [name for name in dir(self) if name.startswith("make_") and (collectives or name != "make_collective")]
        makers += ["make_collective"] * 3 * collectives
        for _ in range(self.random.randint(1, 3)):
            self.input(self.some_shape())
        for _ in range(self.random.randint(3, 10)):
            getattr(self, self.random.choice(makers))()
        count = self.random.randint(1, 3)
        self.results = [self.random.randrange(len(self.steps)) for _ in range(count)]
        self.results.append(len(self.steps) - 1)
        self.gradients = self.gradients and self.is_differentiable()
        del self.tried

    def is_differentiable(self):
        """Whether eager has gradients: it refuses them where a saved value was changed in place."""
        total = _total(self.run(*self.inputs()))
        try:
            return total is not None and total.backward() is None
        except RuntimeError:
            return False

    # ---- making it

    def some_shape(self, least=1):
        shape = tuple(self.random.choice(self.dims) for _ in range(self.random.randint(least, 4)))
        while math.prod(shape) > LARGEST:
            shape = shape[1:]
        if self.zeros and self.random.random() < 0.5:
            shape = (*shape[:-1], 0) if self.random.random() < 0.5 else (0, *shape[1:])
        elif self.rows and shape and self.random.random() < 0.7:
            shape = (None, *shape[1:])
        return shape

    def input(self, shape, kind=None, dtype=None):
        if kind is None:
            kind = self.random.choice(("plain", "plain", "turned", "cut", "offset", "expanded"))
        spec = (tuple(shape), kind, dtype or self.dtype)
        for values, rows in zip(self.tried, ROWS):  # noqa: B905 - as many as are tried
            values.append(_made(spec, rows, torch.Generator().manual_seed(len(values))))
        self.specs.append(spec)
        self.steps.append(None)
        self.plain.append(True)
        return len(self.steps) - 1

    def add(self, text, function, plain=False):
        """A step, if it works in eager. Gives whether it does."""
        found = []
        try:
            for values in self.tried:
                with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                    result = function(values)
                if not isinstance(result, torch.Tensor) or result.numel() > LARGEST or result.is_complex():
                    return False
                found.append(result)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, _maco().Error):
            return False
        for values, result in zip(self.tried, found, strict=True):
            values.append(result)
        self.steps.append((text, function))
        self.plain.append(plain)
        return True

    def shape(self, i):
        return tuple(self.tried[0][i].shape)

    def is_float(self, i):
        return self.tried[0][i].is_floating_point()

    def pick(self, least=0, plain=False):
        """The number of a value of floats, of `least` axes at least; with `plain` one that isn't computed."""
        found = [i for i in range(len(self.steps)) if self.is_float(i) and len(self.shape(i)) >= least and (self.plain[i] or not plain)]
        return self.random.choice(found) if found else self.input(tuple(self.random.choice(self.dims) for _ in range(max(least, 1))))

    def axis(self, i):
        axis = self.random.randrange(len(self.shape(i)))
        return axis - len(self.shape(i)) if self.random.random() < 0.3 else axis

    def make_unary(self):
        i = self.pick()
        name, function = self.random.choice(
            (
                ("relu", torch.relu), ("silu", F.silu), ("gelu", F.gelu), ("sigmoid", torch.sigmoid), ("tanh", torch.tanh),
                ("neg", torch.neg), ("abs", torch.abs), ("square", torch.square), ("sin", torch.sin), ("clone", torch.clone),
                ("third", lambda x: x / 3), ("less", lambda x: 1 - x), ("clamp", lambda x: x.clamp(-0.5, 1.0)),
                ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")), ("leaky", lambda x: F.leaky_relu(x, 0.2)),
                ("cubed", lambda x: (x * 0.5) ** 3), ("detached", lambda x: x * x.detach()), ("exp", lambda x: torch.exp(x.clamp(-2, 2))),
            )
        )  # fmt: skip
        self.add(f"{name}(v{i})", lambda v: function(v[i]))

    def make_other_unary(self):
        i = self.pick()
        name, function = self.random.choice(
            (
                ("log", lambda x: torch.log(x.abs() + 1)), ("sqrt", lambda x: torch.sqrt(x * x + 0.5)), ("cos", torch.cos),
                ("rsqrt", lambda x: torch.rsqrt(x * x + 0.5)), ("reciprocal", lambda x: 1 / (x.abs() + 0.5)), ("erf", torch.erf),
                ("softplus", F.softplus), ("elu", F.elu), ("mish", F.mish), ("hardswish", F.hardswish), ("hardtanh", F.hardtanh),
                ("logsigmoid", F.logsigmoid), ("relu6", F.relu6), ("selu", F.selu), ("log1p", lambda x: torch.log1p(x.abs())),
                ("expm1", lambda x: torch.expm1(x.clamp(-2, 2))), ("clamp_min", lambda x: x.clamp(min=0.1)),
                ("pow4", lambda x: (x / 2) ** 4),
                ("clamp_max", lambda x: x.clamp(max=0.25)), ("hardsigmoid", F.hardsigmoid), ("power", lambda x: (x.abs() + 0.1) ** 1.5),
                ("two_to", lambda x: 2.0 ** x.clamp(-2, 2)), ("times", lambda x: x.mul(3).add(1).sub(x)),
                ("threshold", lambda x: F.threshold(x, 0.1, 0.1)), ("softsign", F.softsign), ("tanhshrink", F.tanhshrink),
                ("nan_to_num", torch.nan_to_num), ("prelu", lambda x: F.prelu(x, torch.tensor([0.2], dtype=x.dtype))),
                ("no_grad", _without_gradient),
            )
        )  # fmt: skip
        self.add(f"{name}(v{i})", lambda v: function(v[i]))

    def make_binary(self):
        i = self.pick()
        same = [j for j in range(len(self.steps)) if self.is_float(j)]
        if self.random.random() < 0.7:
            j = self.random.choice(same)
        else:
            shape = self.shape(i)
            j = self.input(tuple(1 if self.random.random() < 0.3 else one for one in shape[self.random.randint(0, len(shape)) :]))
        name, function = self.random.choice(
            (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("max", torch.maximum), ("min", torch.minimum),
             ("rsub", lambda x, y: y - x), ("add2", lambda x, y: torch.add(x, y, alpha=0.5)), ("gate", lambda x, y: F.silu(x) * y),
             ("div", lambda x, y: x / (y.abs() + 0.5)), ("lerp", lambda x, y: torch.lerp(x, y, 0.3)), ("rest", lambda x, y: x - x * y),
             ("addcmul", lambda x, y: torch.addcmul(x, x, y, value=0.5)), ("addcdiv", lambda x, y: torch.addcdiv(x, y, y.abs() + 1)),
             ("hypot", lambda x, y: torch.sqrt(x * x + y * y + 0.1)), ("dot", lambda x, y: (x * y).sum(-1)))
        )  # fmt: skip
        self.add(f"{name}(v{i}, v{j})", lambda v: function(v[i], v[j]))

    def make_product(self):
        i = self.pick(1)
        inner, width = self.shape(i)[-1], self.random.choice(self.dims)
        dtype = self.tried[0][i].dtype
        kind = self.random.choice(("linear", "linear", "bias", "matmul", "matmul", "own", "bmm", "einsum", "mv", "outer"))
        if kind in ("linear", "bias"):
            j = self.input((width, inner), dtype=dtype)
            b = self.input((width,), dtype=dtype) if kind == "bias" else None
            self.add(f"linear(v{i}, v{j}, v{b})", lambda v: F.linear(v[i], v[j], None if b is None else v[b]))
        elif kind == "matmul":
            j = self.input((inner, width), dtype=dtype)
            self.add(f"v{i} @ v{j}", lambda v: v[i] @ v[j])
        elif kind == "own":
            self.add(f"v{i} @ v{i}.mT", lambda v: v[i] @ v[i].mT)
        elif kind == "bmm":
            j = self.input((2, inner, width), dtype=dtype)
            self.add(f"v{i} @ v{j}", lambda v: v[i] @ v[j])
        elif kind == "einsum":
            j = self.input((width, inner), dtype=dtype)
            self.add(f"einsum(v{i}, v{j})", lambda v: torch.einsum("...k,nk->n...", v[i], v[j]))
        elif kind == "mv":
            j = self.input((inner,), dtype=dtype)
            self.add(f"v{i} @ v{j}", lambda v: v[i] @ v[j])
        else:
            self.add(f"outer of v{i}", lambda v: v[i].unsqueeze(-1) * v[i].unsqueeze(-2))

    def make_view(self):
        i = self.pick(1)
        shape, axis = self.shape(i), self.axis(i)
        size = max(shape[axis], 1)
        order = list(range(len(shape)))
        self.random.shuffle(order)
        first, at, step = self.random.randrange(size), self.random.randrange(size), self.random.choice((1, 1, 2))
        last = self.random.choice((None, None, -1, size, first + 1, size + 3))
        cut = (slice(None),) * (axis % len(shape)) + (slice(first, last, step),)
        text, function = self.random.choice(
            (
                (f".permute({order})", lambda x: x.permute(order)), (f".permute({order}) copied", lambda x: x.permute(order).contiguous()),
                (".reshape(-1)", lambda x: x.reshape(-1)), (f"[{cut}]", lambda x: x[cut]), (f"[{cut}] again", lambda x: x[cut][cut]),
                (f".select({axis}, {at})", lambda x: x.select(axis, at)), (f".select({axis}, -1)", lambda x: x.select(axis, -1)),
                (f".unsqueeze({axis})", lambda x: x.unsqueeze(axis)), (f".chunk(2, {axis})", lambda x: x.chunk(2, axis)[-1]),
                (".expand(2, ...)", lambda x: x.expand(2, *x.shape)), (".mT", lambda x: x.mT), (".squeeze()", lambda x: x.squeeze()),
                (f".reshape(1, -1, {shape[-1]})", lambda x: x.reshape(1, -1, shape[-1])), (".flatten(1)", lambda x: x.flatten(1)),
                (f".unflatten({axis}, (2, -1))", lambda x: x.unflatten(axis, (2, -1))),
                (f".split(2, {axis})", lambda x: x.split(2, axis)[-1]),
                (f".tensor_split(3, {axis})", lambda x: x.tensor_split(3, axis)[1]), (f".unbind({axis})", lambda x: x.unbind(axis)[-1]),
                (f".narrow({axis}, {at}, 1)", lambda x: x.narrow(axis, at, 1)), ("[None, ..., None]", lambda x: x[None, ..., None]),
                (f".movedim({axis}, 0)", lambda x: x.movedim(axis, 0)), (".diagonal()", lambda x: x.diagonal()),
                (f".unfold({axis}, 2, 1)", lambda x: x.unfold(axis, 2, 1)), (".view_as(itself)", lambda x: x.view_as(x)),
                ("[..., 0]", lambda x: x[..., 0]), (f".squeeze({axis})", lambda x: x.squeeze(axis)), (".T of 2", lambda x: x.t()),
            )
        )  # fmt: skip
        self.add(f"v{i}{text}", lambda v: function(v[i]), plain=self.plain[i])

    def make_movement(self):
        i = self.pick(1)
        axis = self.axis(i)
        text, function = self.random.choice(
            (
                (f".flip({axis})", lambda x: x.flip(axis)), (f".roll(1, {axis})", lambda x: x.roll(1, axis)),
                (".repeat", lambda x: x.repeat(2, *[1] * (x.dim() - 1))), (".tile", lambda x: x.tile((3,))),
                (f".repeat_interleave(2, {axis})", lambda x: x.repeat_interleave(2, axis)), (".tril()", lambda x: x.tril()),
                (".triu(1)", lambda x: x.triu(1)), (" padded", lambda x: F.pad(x, (1, 2))), (" cut by pad", lambda x: F.pad(x, (-1, 0))),
                (" padded by 3", lambda x: F.pad(x, (0, 1), value=3.0)), (".contiguous()", lambda x: x.contiguous()),
                (" by [0, 0, -1]", lambda x: x[[0, 0, -1]]), (" diagonal put", lambda x: torch.diag_embed(x)),
                (" rotated", lambda x: torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)),
                (" even and odd", lambda x: torch.stack([x[..., 1::2], x[..., ::2]], -1).flatten(-2)),
            )
        )  # fmt: skip
        self.add(f"v{i}{text}", lambda v: function(v[i]))

    def make_rows(self):
        i = self.pick(1)
        shape, axis = self.shape(i), self.axis(i)
        dtype = self.tried[0][i].dtype
        kind = self.random.choice(("softmax", "log_softmax", "layer_norm", "rms_norm", "written", "group", "l2", "one", "one", "one"))
        if kind in ("softmax", "log_softmax"):
            self.add(f"v{i}.{kind}({axis})", lambda v: getattr(v[i], kind)(axis))
        elif kind == "layer_norm":
            w, b = (
                (self.input(shape[-1:], dtype=dtype), self.input(shape[-1:], dtype=dtype)) if self.random.random() < 0.7 else (None, None)
            )
            self.add(
                f"layer_norm(v{i}, v{w}, v{b})",
                lambda v: F.layer_norm(v[i], shape[-1:], None if w is None else v[w], None if b is None else v[b], 1e-2),
            )
        elif kind == "rms_norm":
            w = self.input(shape[-1:], dtype=dtype)
            self.add(f"rms_norm(v{i}, v{w})", lambda v: F.rms_norm(v[i], shape[-1:], v[w], 1e-2))
        elif kind == "written":
            self.add(
                f"written norm of v{i}", lambda v: v[i] * torch.rsqrt(v[i].float().pow(2).mean(-1, keepdim=True) + 1e-2).to(v[i].dtype)
            )
        elif kind == "group":
            self.add(f"group_norm(v{i})", lambda v: F.group_norm(v[i], 1, eps=1e-2))
        elif kind == "l2":
            self.add(f"normalize(v{i})", lambda v: F.normalize(v[i] + 1, dim=axis))
        else:
            self.make_reduction(i, axis)

    def make_reduction(self, i=None, axis=None):
        i = self.pick(1) if i is None else i
        axis = self.axis(i) if axis is None else axis
        keep = self.random.random() < 0.4
        text, function = self.random.choice(
            (
                (f".sum({axis})", lambda x: x.sum(axis, keep)), (f".mean({axis})", lambda x: x.mean(axis, keep)),
                (f".amax({axis})", lambda x: x.amax(axis, keep)), (f".amin({axis})", lambda x: x.amin(axis, keep)),
                (f".var({axis})", lambda x: x.var(axis, keepdim=keep)), (f".std({axis})", lambda x: (x * x + x).std(axis, correction=0)),
                (f".var({axis}, 0)", lambda x: x.var(axis, correction=0, keepdim=keep)), (".sum()", lambda x: x.sum() * x),
                (f".logsumexp({axis})", lambda x: x.logsumexp(axis, keep)), (f".prod({axis})", lambda x: x.prod(axis)),
                (f".cumsum({axis})", lambda x: x.cumsum(axis)), (f".max({axis})", lambda x: x.max(axis).values),
                (".mean()", lambda x: x.mean()),
                (".sum of two", lambda x: x.sum((0, -1), keep)), (".mean of two", lambda x: x.mean((-2, -1), keep)),
                (".max()", lambda x: x.max()),
                (f".norm({axis})", lambda x: torch.linalg.vector_norm(x + 2, dim=axis)), (" less mean", lambda x: x - x.mean(axis, True)),
                (f".sum({axis}) in f32", lambda x: x.sum(axis, dtype=torch.float32)),
                (" by its sum", lambda x: x / (x.abs().sum(axis, True) + 1)),
                (f".topk({axis})", lambda x: x.topk(1, axis).values), (f".min({axis})", lambda x: x.min(axis, keep).values),
                (f".sort({axis})", lambda x: x.sort(axis).values), (".var_mean", lambda x: torch.add(*torch.var_mean(x, -1, correction=0))),
            )
        )  # fmt: skip
        self.add(f"v{i}{text}{', kept' if keep else ''}", lambda v: function(v[i]))

    def make_join(self):
        i = self.pick(1)
        axis = self.axis(i)
        same = [j for j in range(len(self.steps)) if self.is_float(j) and len(self.shape(j)) == len(self.shape(i))]
        j, k = self.random.choice(same), self.random.choice([*same, None])
        parts = [i, j] if k is None else [i, j, k]
        if self.random.random() < 0.6:
            self.add(f"cat(v{parts}, {axis})", lambda v: torch.cat([v[one] for one in parts], axis))
        else:
            self.add(f"stack(v{parts}, {axis})", lambda v: torch.stack([v[one] for one in parts], axis))

    def make_attention(self):
        heads, width, rows = self.random.choice((1, 2, 4)), self.random.choice((4, 8)), self.random.choice((3, 4))
        batch = self.random.choice((1, 1, 2))
        kind = self.random.choice(("all", "causal", "causal", "mask", "bias", "written", "grouped"))
        qkv = [self.input((batch, rows, heads if i == 0 or kind != "grouped" else 1, width), "plain") for i in range(3)]

        def run(v):
            q, k, x = (v[j].transpose(1, 2) for j in qkv)
            if kind == "written":
                scores = q @ k.transpose(-2, -1) / math.sqrt(width)
                seen = torch.ones(rows, rows, dtype=torch.bool).tril()
                found = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ x
            else:
                mask = None
                if kind == "mask":
                    mask = torch.ones(rows, rows, dtype=torch.bool).tril(1)
                elif kind == "bias":
                    mask = q.new_zeros(rows, rows) - torch.arange(rows).to(q.dtype)
                found = F.scaled_dot_product_attention(q, k, x, mask, is_causal=kind == "causal", enable_gqa=kind == "grouped")
            return found.transpose(1, 2).reshape(batch, rows, heads * width)

        self.add(f"attention(v{qkv}, {kind})", run)

    def make_choice(self):
        """Comparisons of what isn't computed, so that rounding decides nothing, and what they choose."""
        i = self.pick(plain=True)
        j, k = self.pick(), self.pick()
        name, test = self.random.choice(
            (("> 0", lambda x: x > 0), ("<= 0.5", lambda x: x <= 0.5), ("== itself", lambda x: x == x), ("!= 0", lambda x: x != 0),
             ("is nan", torch.isnan), ("between", lambda x: (x > -1) & (x < 1)), ("outside", lambda x: ~(x.abs() < 0.5) | (x > 2)))
        )  # fmt: skip
        use, function = self.random.choice(
            (
                ("where", lambda b, x, y: torch.where(b, x, y)), ("masked_fill", lambda b, x, y: x.masked_fill(b, -2.0)),
                ("where 0", lambda b, x, y: torch.where(b, x, 0.0)), ("product", lambda b, x, y: x * b),
                ("cast", lambda b, x, y: b.to(x.dtype)),
                ("bools", lambda b, x, y: b), ("where of numbers", lambda b, x, y: torch.where(b, 1.0, -1.0)),
                ("count", lambda b, x, y: b.sum(-1)), ("any", lambda b, x, y: b.any(-1)), ("all", lambda b, x, y: b.all()),
                ("filled with -inf", lambda b, x, y: x.masked_fill(b, float("-inf")).clamp(min=-3)),
            )
        )  # fmt: skip
        self.add(f"{use}(v{i} {name}, v{j}, v{k})", lambda v: function(test(v[i]), v[j], v[k]))

    def make_cast(self):
        i = self.random.randrange(len(self.steps))
        dtype = self.random.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64))
        self.add(f"v{i}.to({str(dtype)[6:]})", lambda v: v[i].to(dtype))

    def make_numbers(self):
        """Integers: as numbers of rows and as numbers."""
        i = self.pick(1)
        rows = min(values[i].shape[0] for values in self.tried)
        shape = tuple(self.random.choice((1, 2, 3)) for _ in range(self.random.randint(1, 2)))
        j = self.input(shape, ("numbers", max(rows, 1)), self.random.choice((torch.int64, torch.int64, torch.int32)))
        text, function = self.random.choice(
            (
                ("embedding", lambda n, x: F.embedding(n, x)), ("x[n]", lambda n, x: x[n]),
                ("index_select", lambda n, x: x.index_select(0, n[..., 0])),
                ("x[:, n]", lambda n, x: x[:, n % x.shape[1]]), ("n * x", lambda n, x: n.float().mean() * x),
                ("n + n", lambda n, x: n + n * 2),
                ("gather", lambda n, x: x.gather(0, n)), ("one_hot", lambda n, x: (n[..., None] == torch.arange(4)).to(x.dtype)),
                ("arange", lambda n, x: x + torch.arange(x.shape[-1])), ("n.sum()", lambda n, x: n.sum()), ("n > 1", lambda n, x: n > 1),
                ("n // 2", lambda n, x: n // 2), ("n as floats", lambda n, x: n.to(x.dtype) / 2),
                ("index_add", lambda n, x: x.index_add(0, n[0], x[n[0]])),
                ("n.max()", lambda n, x: n.max()), ("n.clamp", lambda n, x: n.clamp(0, 1)), ("n by axis", lambda n, x: n.sum(0)),
                ("-n", lambda n, x: -n),
                ("n & 1", lambda n, x: n & 1), ("scatter", lambda n, x: torch.zeros_like(x).scatter(0, n, x)),
                ("n + x", lambda n, x: n.sum() + x),
            )
        )  # fmt: skip
        self.add(f"{text} of n = v{j}, x = v{i}", lambda v: function(v[j], v[i]))

    def make_update(self):
        """A change in place of something that was made here."""
        i = self.pick(1)
        shape = self.shape(i)
        kind = self.random.choice(("add_", "set", "row", "view", "fill", "column", "masked", "both", "relu_", "step", "copied"))

        def run(v):
            x = v[i].clone()
            if kind == "add_":
                x.mul_(2).add_(v[i])
            elif kind == "set":
                x[..., : (shape[-1] + 1) // 2] = v[i][..., (shape[-1]) // 2 :]
            elif kind == "row":
                x[0] = x[-1] * 2
            elif kind == "view":
                part = x[..., 1:]
                part.mul_(3)
                return x + part.sum()
            elif kind == "fill":
                x[..., 0].fill_(1.5)
            elif kind == "column":
                x.select(-1, -1).add_(x.select(-1, 0))
            elif kind == "masked":
                x.masked_fill_(torch.ones(shape[-1], dtype=torch.bool).tril(), 0.5)
            elif kind == "both":
                turned = x.mT
                turned.add_(1)
                return torch.stack([x, turned.mT])
            elif kind == "relu_":
                x.relu_()
                x -= 0.1
            elif kind == "step":
                x[..., ::2] *= 2
            else:
                other = torch.empty_like(x)
                other.copy_(x * 2)
                return other
            return x

        self.add(f"{kind} in a copy of v{i}", run)

    def make_change(self):
        """A change in place of an input, or of a view of it."""
        found = [i for i, step in enumerate(self.steps) if step is None and self.is_float(i) and self.specs_of(i)[1] != "expanded"]
        if not self.changes or not found:
            return
        i, j = self.random.choice(found), self.pick()
        kind, function = self.random.choice(
            (
                ("add_", lambda x, y: x.add_(y)), ("mul_", lambda x, y: x.mul_(0.5)), ("copy_", lambda x, y: x.copy_(y)),
                ("first row", lambda x, y: x[0].copy_(y)), ("rows", lambda x, y: x[1:].mul_(2)),
                ("column", lambda x, y: x.select(-1, 0).fill_(2.0)),
                ("turned", lambda x, y: x.mT.add_(1)), ("average", lambda x, y: x.mul_(0.9).add_(y.mean(), alpha=0.1)),
                ("zero_", lambda x, y: x.zero_()),
                ("lerp_", lambda x, y: x.lerp_(y, 0.1)), ("flat", lambda x, y: x.view(-1).add_(1)),
                ("last row", lambda x, y: x[-1].add_(y.sum())),
            )
        )  # fmt: skip
        self.add(f"v{i} {kind} v{j}", lambda v: function(v[i], v[j]))

    def make_loss(self):
        i = self.pick(2)
        kind, function = self.random.choice(
            (("l1", lambda x: F.l1_loss(x, x.detach() * 0.5)), ("mse", lambda x: F.mse_loss(x, torch.zeros_like(x))),
             ("smooth", lambda x: F.smooth_l1_loss(x, x.detach() + 2)),
             ("entropy", lambda x: F.cross_entropy(x, torch.zeros_like(x[:, 0]).long())),
             ("kl", lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="batchmean")),
             ("cosine", lambda x: F.cosine_similarity(x + 1, x * x + 1, dim=-1)),
             ("bce", lambda x: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid())))
        )  # fmt: skip
        # Torch itself can't trace the gradient of mse_loss without elements, whatever the backend.
        self.add(f"{kind} loss of v{i}", lambda v: function(v[i]) if v[i].numel() or kind != "mse" else v[i].sum())

    def make_collective(self):
        maco = _maco()
        i = self.pick(1)
        world, rank = maco.get_world_size(), maco.get_rank()
        kind, function = self.random.choice(
            (("allreduce", maco.allreduce), ("allreduce", maco.allreduce), ("max", lambda x: maco.allreduce(x, op=maco.MAX)),
             ("avg", lambda x: maco.allreduce(x, op=maco.AVG)), ("allgather", maco.allgather),
             ("reduce_scatter", lambda x: maco.reduce_scatter(x)),
             ("alltoall", lambda x: maco.alltoall(x)), ("broadcast", lambda x: maco.broadcast(x, root=world - 1)),
             ("by rank", lambda x: maco.allreduce(x * (rank + 1))))
        )  # fmt: skip
        if not self.rows:
            self.add(f"{kind} of v{i}", lambda v: function(v[i]))

    def specs_of(self, i):
        return self.specs[sum(step is None for step in self.steps[:i])]

    # ---- running it

    def inputs(self, call=0, rank=0):
        """Operands of the call of that number."""
        generator = torch.Generator().manual_seed(self.seed * 7 + call + 1000003 * rank)
        made = [_made(spec, ROWS[call % len(ROWS)] if self.rows else ROWS[0], generator) for spec in self.specs]
        return [one.requires_grad_(self.gradients and one.is_floating_point()) for one in made]

    def run(self, *inputs):
        given = iter(inputs)
        values = []
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            for step in self.steps:
                values.append(next(given) if step is None else step[1](values))
        return tuple(values[i] for i in self.results)

    def text(self):
        what = [
            f"seed {self.seed}",
            str(self.dtype),
            *(word for word in ("gradients", "rows", "zeros", "module", "changes", "autocast") if getattr(self, word)),
        ]
        specs = iter(self.specs)
        lines = [f"  v{i} = {step[0] if step else next(specs)}" for i, step in enumerate(self.steps)]
        return "\n".join([", ".join(what), *lines, f"  return {self.results}"])


class _Held(torch.nn.Module):
    """A case as a module: inputs of at most two axes, of one size, are parameters or buffers of its own, if the case says so."""

    def __init__(self, case):
        super().__init__()
        self.case = case
        self.inner = torch.nn.Module()
        fits = [len(shape) <= 2 and None not in shape and kind != "expanded" and dtype in FLOATS for shape, kind, dtype in case.specs]
        self.own = {i for i, one in enumerate(fits) if one and case.module}
        for i in self.own:
            self.inner.register_buffer(f"p{i}", None)
            if case.gradients:
                delattr(self.inner, f"p{i}")
                self.inner.register_parameter(f"p{i}", None)

    def take(self, inputs):
        """Takes its own of them, by their contents where it has some. Gives the others, and all with its own in their places."""
        for i in self.own:
            old = getattr(self.inner, f"p{i}")
            if old is None:
                new = inputs[i].detach()
                setattr(self.inner, f"p{i}", torch.nn.Parameter(new) if self.case.gradients else new)
            else:
                old.grad = None
                with torch.no_grad():
                    old.copy_(inputs[i])
        every = [getattr(self.inner, f"p{i}") if i in self.own else one for i, one in enumerate(inputs)]
        return [one for i, one in enumerate(inputs) if i not in self.own], every

    def forward(self, *inputs):
        given = iter(inputs)
        return self.case.run(*[getattr(self.inner, f"p{i}") if i in self.own else next(given) for i in range(len(self.case.specs))])


@torch.no_grad()
def _without_gradient(x):
    return x * 2


def _made(spec, rows, generator):
    shape, kind, dtype = spec
    shape = [rows if one is None else one for one in shape]
    if isinstance(kind, tuple):
        return torch.randint(0, kind[1], shape, generator=generator, dtype=dtype)
    x = torch.randn([one + (kind == "cut") for one in shape], generator=generator).to(dtype)
    if kind == "turned":
        return torch.randn(shape[::-1], generator=generator).to(dtype).permute(tuple(reversed(range(len(shape)))))
    if kind == "cut":
        return x[tuple(slice(1, None) for _ in shape)].detach()
    if kind == "offset":
        return torch.cat([torch.zeros(1, dtype=dtype), x.reshape(-1)])[1:].view(shape)
    if kind == "expanded" and len(shape) > 1:
        return x[:1].expand(shape) if shape[0] else x
    return x


# ---- comparing it


def _difference(got, want):
    """The largest difference of two tensors of floats; infinite where only one isn't finite."""
    got, want = got.detach().double(), want.detach().double()
    same = (got == want) | (got.isnan() & want.isnan())
    difference = torch.where(same, 0.0, (got - want).abs())
    return torch.where(difference.isnan(), math.inf, difference).max().item() if difference.numel() else 0.0


def close(got, want, what, spread=lambda: 0.0):
    """Raises AssertionError unless they have one shape and dtype, and elements near each other.

    `spread` says how much rounding of the inputs changes; it is asked where the bound for well-behaved functions doesn't do.
    """
    assert got.shape == want.shape and got.dtype == want.dtype, f"{what}: {got.shape} {got.dtype}, not {want.shape} {want.dtype}"
    assert got.device == want.device
    if not want.is_floating_point():
        assert torch.equal(got, want), f"{what}: {got} differs from {want}"
        return
    difference = _difference(got, want)
    finite = want.detach().double().abs()
    largest = finite[finite.isfinite()].max().item() if finite.isfinite().any() else 0.0
    bound = {torch.float64: 2e-4, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}[want.dtype] * max(1.0, largest)
    if difference > bound:
        assert difference <= bound + 4 * spread(), f"{what}: differs by {difference}, bound {bound}"


def _total(results):
    used = [one.float() for one in results if one.requires_grad]
    return sum((one * one).sum() * 0.1 for one in used) if used else None


class _Spread:
    """How far results and gradients of a case lie apart if its inputs are rounded otherwise."""

    def __init__(self, case, call, rank, collectives):
        self.case, self.call, self.rank, self.found = case, call, rank, None
        self.alone = not collectives  # else all ranks would have to run it

    def of(self, kind, i):
        def ask():
            if not self.alone:
                return 0.0
            if self.found is None:
                self.found = [self._run(None), *(self._run(k) for k in range(4))]
            first, *others = self.found
            return max((_difference(one[kind][i], first[kind][i]) for one in others if first[kind][i] is not None), default=0.0)

        return ask

    def _run(self, k):
        case = self.case
        inputs = case.inputs(self.call, self.rank)
        if k is not None:
            generator = torch.Generator().manual_seed(k)
            step = torch.finfo(torch.bfloat16 if case.autocast else case.dtype).eps
            with torch.no_grad():
                inputs = [
                    (one * (1 + step * torch.randn(one.shape, generator=generator)).to(one.dtype)).requires_grad_(one.requires_grad)
                    if one.is_floating_point()
                    else one
                    for one in inputs
                ]
        with torch.set_grad_enabled(case.gradients):
            results = case.run(*inputs)
            total = _total(results) if case.gradients else None
        if total is not None:
            total.backward()
        return [one.detach() for one in results], [one.grad for one in inputs], [one.detach() for one in inputs]


def _aliases(results, inputs):
    """Which tensors share memory, by pairs of numbers."""
    every = [one.untyped_storage().data_ptr() if one.numel() else None for one in (*inputs, *results)]
    return {(i, j) for i, one in enumerate(every) for j in range(i) if one is not None and one == every[j]}


def check(seed, **options):
    """Compiles the case of a seed and compares it with eager, forward and backward. `options` are those of maco.compile."""
    compare(Case(seed), **options)


def compare(case, how="compile", collectives=False, **options):
    """Compares what is compiled of a case, or with `how` "overlap" what is written down of it, with eager."""
    maco = _maco()
    rank = maco.get_rank() if collectives else 0
    eager, other = _Held(case), _Held(case)
    torch._dynamo.reset()
    compiled = maco.compile(other if case.module else case.run, dynamic=True if case.rows and case.seed % 3 == 0 else None, **options)
    for call in range(3 if case.rows else 2):
        spread = _Spread(case, call, rank, collectives)
        given, inputs = eager.take(case.inputs(call, rank))
        more, others = other.take(case.inputs(call, rank))
        name = f"call {call}, "
        with torch.set_grad_enabled(case.gradients):
            want = eager(*given)
            if how == "compile":
                got = compiled(*more)
            else:
                with maco.auto_overlap():
                    got = other(*more)
                got = [one.wait() if hasattr(one, "wait") else one for one in got]
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            close(g, w, f"{name}result {i}", spread.of(0, i))
            assert g.requires_grad == w.requires_grad, f"{name}result {i}: requires_grad is {g.requires_grad}"
            if how == "compile" and _strides(g) != _strides(w):
                # Of some ops torch's tracing has other strides than torch's kernels, as of log_sigmoid and of powers of numbers.
                traced = _traced(case, call, rank)[i]
                assert _strides(g) == _strides(traced), f"{name}result {i}: strides {g.stride()}, not {w.stride()}"
        if how == "compile":
            have, should = _aliases(got, others), _aliases(want, inputs)
            assert have == should, f"{name}memory is shared by {sorted(have)}, not {sorted(should)}"
        for i, (x, y) in enumerate(zip(inputs, others, strict=True)):
            close(y, x, f"{name}input {i} afterwards", spread.of(2, i))
        if case.gradients and _total(want) is not None:
            for results in (want, got):
                _total(results).backward()
            for i, (x, y) in enumerate(zip(inputs, others, strict=True)):
                assert (x.grad is None) == (y.grad is None), f"{name}gradient {i}: one is None"
                if x.grad is not None:
                    close(y.grad, x.grad, f"{name}gradient {i}", spread.of(1, i))


def _traced(case, call, rank):
    """The results as torch traces them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode, torch.set_grad_enabled(case.gradients):
        return case.run(*[mode.from_tensor(one) for one in case.inputs(call, rank)])


def _strides(tensor):
    """Of axes of more than one element."""
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1] if tensor.numel() else []


def tried(seeds, how="compile", collectives=False, verbose=False):
    """Checks the cases of some seeds, prints those that are wrong, and gives their seeds."""
    warnings.filterwarnings("ignore", message=".*is not contiguous.*|.*resized.*")
    bad = []
    for seed in seeds:
        case = Case(seed, collectives)
        try:
            compare(case, how, collectives)
            if verbose:
                print(case.text())
        except Exception:  # noqa: BLE001
            bad.append(seed)
            print(case.text())
            traceback.print_exc(limit=-3, file=sys.stdout)
        sys.stdout.flush()
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--how", choices=("compile", "overlap"), default="compile")
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    if arguments.world > 1:
        import ranks

        found = ranks.run(arguments.world, tried, seeds, arguments.how, True, arguments.verbose, timeout=60 + 20 * arguments.count)
        bad = sorted(set().union(*found))
    else:
        bad = tried(seeds, arguments.how, verbose=arguments.verbose)
    print(f"{arguments.count - len(bad)} of {arguments.count} right" + (f"; wrong: {bad}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
