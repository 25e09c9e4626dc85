"""Random functions of torch ops, forward and backward, compiled by MACO and compared with eager.

`python random_modules.py --count N --seed S` tries N of them and says which seeds differ; `--verbose` prints each.
"""

import argparse
import math
import random
import sys
import traceback

import torch
import torch.nn.functional as F

DIMS = (1, 2, 3, 4, 8)


class Case:
    """A function that `seed` decides: `run(*inputs)` gives a tuple, `inputs()` makes operands, always the same."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.dtype = self.random.choice((torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16))
        self.gradients = self.dtype is torch.float32 and self.random.random() < 0.5
        self.specs = []  # of inputs: shape, kind
        self.steps = []  # text and function of the values so far
        self.shapes = []
        self.floats = []
        for _ in range(self.random.randint(1, 3)):
            self.input(tuple(self.random.choice(DIMS) for _ in range(self.random.randint(1, 4))))
        for _ in range(self.random.randint(3, 10)):
            self.step()
        count = self.random.randint(1, 3)
        self.results = [self.random.randrange(len(self.shapes)) for _ in range(count)]
        self.results.append(len(self.shapes) - 1)

    # ---- making it

    def input(self, shape, kind=None):
        kind = kind or self.random.choice(("plain", "plain", "turned", "cut", "offset"))
        self.specs.append((shape, kind))
        self.steps.append(None)
        self.shapes.append(shape)
        self.floats.append(True)
        return len(self.shapes) - 1

    def add(self, text, function, shape):
        self.steps.append((text, function))
        self.shapes.append(tuple(shape))
        self.floats.append(True)

    def pick(self, least=0):
        found = [i for i, shape in enumerate(self.shapes) if len(shape) >= least and math.prod(shape) <= 4096]
        return self.random.choice(found) if found else self.input(tuple(self.random.choice(DIMS) for _ in range(max(least, 1))))

    def step(self):
        getattr(self, self.random.choice([name for name in dir(self) if name.startswith("make_")]))()

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
        self.add(f"{name}(v{i})", lambda v: function(v[i]), self.shapes[i])

    def make_binary(self):
        i = self.pick()
        shape = self.shapes[i]
        partner = tuple(1 if self.random.random() < 0.3 else one for one in shape[self.random.randint(0, len(shape)) :])
        same = [j for j, one in enumerate(self.shapes) if _broadcasts(one, shape)]
        j = self.random.choice(same) if self.random.random() < 0.7 else self.input(partner)
        name, function = self.random.choice(
            (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("max", torch.maximum), ("min", torch.minimum),
             ("rsub", lambda x, y: y - x), ("add2", lambda x, y: torch.add(x, y, alpha=0.5)), ("gate", lambda x, y: F.silu(x) * y))
        )  # fmt: skip
        self.add(f"{name}(v{i}, v{j})", lambda v: function(v[i], v[j]), torch.broadcast_shapes(shape, self.shapes[j]))

    def make_product(self):
        i = self.pick(1)
        inner, width = self.shapes[i][-1], self.random.choice(DIMS)
        if self.random.random() < 0.5:
            j = self.input((width, inner))
            if self.random.random() < 0.5:
                b = self.input((width,))
                self.add(f"linear(v{i}, v{j}, v{b})", lambda v: F.linear(v[i], v[j], v[b]), (*self.shapes[i][:-1], width))
            else:
                self.add(f"linear(v{i}, v{j})", lambda v: F.linear(v[i], v[j]), (*self.shapes[i][:-1], width))
        else:
            j = self.input((inner, width))
            self.add(f"v{i} @ v{j}", lambda v: v[i] @ v[j], (*self.shapes[i][:-1], width))

    def make_view(self):
        i = self.pick(1)
        shape = self.shapes[i]
        kind = self.random.choice(("permute", "flatten", "slice", "select", "unsqueeze", "reshape", "chunk", "expand", "transposed"))
        axis = self.random.randrange(len(shape))
        if kind == "permute" or kind == "transposed":
            order = list(range(len(shape)))
            self.random.shuffle(order)
            more = (lambda x: x.contiguous()) if kind == "transposed" else (lambda x: x)
            self.add(f"v{i}.permute({order})", lambda v: more(v[i].permute(order)), [shape[o] for o in order])
        elif kind == "flatten":
            self.add(f"v{i}.reshape(-1)", lambda v: v[i].reshape(-1), (math.prod(shape),))
        elif kind == "slice" and shape[axis] > 1:
            first = self.random.randrange(shape[axis] - 1)
            step = self.random.choice((1, 1, 2))
            cut = (slice(None),) * axis + (slice(first, None, step),)
            self.add(f"v{i}[{cut}]", lambda v: v[i][cut], (*shape[:axis], len(range(first, shape[axis], step)), *shape[axis + 1 :]))
        elif kind == "select":
            at = self.random.randrange(shape[axis])
            self.add(f"v{i}.select({axis}, {at})", lambda v: v[i].select(axis, at), (*shape[:axis], *shape[axis + 1 :]))
        elif kind == "unsqueeze" and len(shape) < 5:
            self.add(f"v{i}.unsqueeze({axis})", lambda v: v[i].unsqueeze(axis), (*shape[:axis], 1, *shape[axis:]))
        elif kind == "chunk" and shape[axis] % 2 == 0:
            self.add(f"v{i}.chunk(2, {axis})[1]", lambda v: v[i].chunk(2, axis)[1], (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :]))
        elif kind == "expand" and len(shape) < 4:
            self.add(f"v{i}.expand(2, ...)", lambda v: v[i].expand(2, *shape), (2, *shape))
        else:
            self.add(f"v{i}.reshape(1, -1, {shape[-1]})", lambda v: v[i].reshape(1, -1, shape[-1]), (1, math.prod(shape[:-1]), shape[-1]))

    def make_rows(self):
        i = self.pick(1)
        shape = self.shapes[i]
        axis = self.random.randrange(len(shape))
        kind = self.random.choice(("softmax", "sum", "mean", "amax", "layer_norm", "rms_norm", "keep", "all", "norm_out"))
        rest = (*shape[:axis], *shape[axis + 1 :])
        if kind == "softmax":
            self.add(f"v{i}.softmax({axis})", lambda v: v[i].softmax(axis), shape)
        elif kind in ("sum", "mean", "amax"):
            self.add(f"v{i}.{kind}({axis})", lambda v: getattr(v[i], kind)(axis), rest)
        elif kind == "keep":
            kept = (*shape[:axis], 1, *shape[axis + 1 :])
            self.add(f"v{i} - v{i}.mean({axis}, True)", lambda v: v[i] - v[i].mean(axis, True), torch.broadcast_shapes(shape, kept))
        elif kind == "all":
            self.add(f"v{i}.sum() * v{i}", lambda v: v[i].sum() * v[i], shape)
        elif kind == "layer_norm":
            w, b = self.input(shape[-1:]), self.input(shape[-1:])
            self.add(f"layer_norm(v{i}, v{w}, v{b})", lambda v: F.layer_norm(v[i], shape[-1:], v[w], v[b], 1e-2), shape)
        elif kind == "rms_norm":
            w = self.input(shape[-1:])
            self.add(f"rms_norm(v{i}, v{w})", lambda v: F.rms_norm(v[i], shape[-1:], v[w], 1e-2), shape)
        else:
            self.add(
                f"written norm of v{i}",
                lambda v: v[i] * torch.rsqrt(v[i].float().pow(2).mean(-1, keepdim=True) + 1e-2).to(v[i].dtype),
                shape,
            )

    def make_join(self):
        i = self.pick(1)
        shape = self.shapes[i]
        axis = self.random.randrange(len(shape))
        same = [j for j, one in enumerate(self.shapes) if one == shape]
        j = self.random.choice(same)
        if self.random.random() < 0.7:
            self.add(
                f"cat(v{i}, v{j}, {axis})", lambda v: torch.cat([v[i], v[j]], axis), (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
            )
        elif len(shape) < 4:
            self.add(f"stack(v{i}, v{j}, {axis})", lambda v: torch.stack([v[i], v[j]], axis), (*shape[:axis], 2, *shape[axis:]))

    def make_attention(self):
        if self.random.random() < 0.5:
            return
        heads, width, rows, batch = self.random.choice((1, 2, 4)), self.random.choice((4, 8)), self.random.choice((3, 4)), 1
        if self.random.random() < 0.3:
            batch = 2
        qkv = [self.input((batch, rows, heads, width), "plain") for _ in range(3)]
        causal = self.random.random() < 0.5

        def run(v):
            q, k, x = (v[j].transpose(1, 2) for j in qkv)
            return F.scaled_dot_product_attention(q, k, x, is_causal=causal).transpose(1, 2).reshape(batch, rows, heads * width)

        self.add(f"attention(v{qkv}, {causal})", run, (batch, rows, heads * width))

    def make_update(self):
        """A change in place of something that was made here."""
        i = self.pick(1)
        shape = self.shapes[i]
        kind = self.random.choice(("add_", "set", "row"))

        def run(v):
            x = v[i].clone()
            if kind == "add_":
                x.mul_(2).add_(v[i])
            elif kind == "set":
                x[..., : (shape[-1] + 1) // 2] = v[i][..., (shape[-1]) // 2 :]
            else:
                x[0] = x[-1] * 2
            return x

        self.add(f"{kind} in a copy of v{i}", run, shape)

    # ---- running it

    def inputs(self):
        generator = torch.Generator().manual_seed(self.seed)
        made = []
        for shape, kind in self.specs:
            x = torch.randn([one + (kind == "cut") for one in shape], generator=generator)
            x = x.to(self.dtype)
            if kind == "turned":
                x = torch.randn(shape[::-1], generator=generator).to(self.dtype).permute(tuple(reversed(range(len(shape)))))
            elif kind == "cut":
                x = x[tuple(slice(1, None) for _ in shape)]
            elif kind == "offset":
                x = torch.cat([torch.zeros(1, dtype=self.dtype), x.reshape(-1)])[1:].view(shape)
            made.append(x.detach().requires_grad_(self.gradients))
        return made

    def run(self, *inputs):
        given = iter(inputs)
        values = []
        for step in self.steps:
            values.append(next(given) if step is None else step[1](values))
        return tuple(values[i] for i in self.results)

    def text(self):
        lines = [f"seed {self.seed}, {self.dtype}, gradients: {self.gradients}"]
        specs = iter(self.specs)
        lines += [f"  v{i} = {step[0] if step else next(specs)} {self.shapes[i]}" for i, step in enumerate(self.steps)]
        return "\n".join([*lines, f"  return {self.results}"])


def _broadcasts(shape, to):
    try:
        return torch.broadcast_shapes(shape, to) == to
    except RuntimeError:
        return False


def close(got, want, what):
    """Raises AssertionError unless they have one shape, dtype and stride, and elements near each other."""
    assert got.shape == want.shape and got.dtype == want.dtype, f"{what}: {got.shape} {got.dtype}, not {want.shape} {want.dtype}"
    assert got.device == want.device
    if want.numel():
        difference = (got.double() - want.double()).abs().max().item()
        bound = {torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}[want.dtype] * max(1.0, want.double().abs().max().item())
        assert difference <= bound, f"{what}: differs by {difference}, bound {bound}"


def check(seed, dynamic=False, **options):
    """Compiles the case of a seed and compares it with eager, forward and backward. Gives the case."""
    try:
        import maco
    except ImportError:
        from conftest import maco

    case = Case(seed)
    torch._dynamo.reset()
    compiled = maco.compile(case.run, dynamic=dynamic, **options)
    inputs, other = case.inputs(), case.inputs()
    with torch.set_grad_enabled(case.gradients):
        want, got = case.run(*inputs), compiled(*other)
        again = compiled(*other)
    for i, (g, a, w) in enumerate(zip(got, again, want, strict=True)):
        close(g, w, f"result {i}")
        close(a, w, f"result {i} of the second call")
        assert g.stride() == w.stride() or w.numel() < 2 or 1 in w.shape, f"result {i}: strides {g.stride()}, not {w.stride()}"
    if case.gradients and any(w.requires_grad for w in want):
        for results in (want, got):
            total = sum((one * one).sum() * 0.1 for one in results if one.requires_grad)
            total.backward()
        for i, (x, y) in enumerate(zip(inputs, other, strict=True)):
            assert (x.grad is None) == (y.grad is None), f"gradient {i}: one is None"
            if x.grad is not None:
                close(y.grad, x.grad, f"gradient {i}")
    return case


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dynamic", action="store_true", help="sizes stay open")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    bad = []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            case = check(seed, arguments.dynamic)
            if arguments.verbose:
                print(case.text())
        except Exception:  # noqa: BLE001
            bad.append(seed)
            print(Case(seed).text())
            traceback.print_exc(limit=-3)
        sys.stdout.flush()
    print(f"{arguments.count - len(bad)} of {arguments.count} right" + (f"; wrong: {bad}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
