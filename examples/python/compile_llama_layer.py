"""torch.compile of a Llama layer whose weights are cut over the ranks: RMSNorm, rotary embeddings, grouped heads, a gated MLP.

Each rank has some of the heads and of the MLP's hidden columns. Without gradients the whole layer is one kernel, with both all-reduces
inside; in training attention is torch's, and what stands before and behind it is MACO's, forward and backward.
"""

import os

import torch
import torch.nn.functional as F
from torch import nn

import maco
from maco.nn import ColumnParallelLinear, RowParallelLinear

DEVICE = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
WIDTH, HEADS, SHARED, HIDDEN, TOKENS = 64, 4, 2, 128, 12
SIZE = WIDTH // HEADS


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    """A layer of Llama's. `column` and `row` make its products: torch's for the whole layer, or MACO's for a rank's part."""

    def __init__(self, column, row, world):
        super().__init__()
        self.heads, self.shared = HEADS // world, SHARED // world
        self.input_norm, self.post_norm = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.q, self.k, self.v = column(WIDTH, WIDTH), column(WIDTH, SHARED * SIZE), column(WIDTH, SHARED * SIZE)
        self.o = row(WIDTH, WIDTH)
        self.gate, self.up, self.down = column(WIDTH, HIDDEN), column(WIDTH, HIDDEN), row(HIDDEN, WIDTH)

    def forward(self, x, cos, sin):
        batch, rows, _ = x.shape
        h = self.input_norm(x)
        q = self.q(h).view(batch, rows, self.heads, SIZE).transpose(1, 2)
        k = self.k(h).view(batch, rows, self.shared, SIZE).transpose(1, 2)
        v = self.v(h).view(batch, rows, self.shared, SIZE).transpose(1, 2)
        y = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, rows, -1))
        h = self.post_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def whole_linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


maco.init()
rank, world = maco.get_rank(), maco.get_world_size()
if SHARED % world:
    raise SystemExit(f"the {SHARED} heads of keys can't be cut into {world} equal parts: start 1 or 2 ranks")

torch.manual_seed(0)
reference = Layer(whole_linear, whole_linear, 1)
layer = Layer(ColumnParallelLinear, RowParallelLinear, world)
for name, part in layer.named_children():
    own = getattr(reference, name)
    if isinstance(own, nn.Linear):
        part.take(own)  # this rank's part of the weights
    else:
        part.load_state_dict(own.state_dict())
layer.to(DEVICE)

angles = torch.outer(torch.arange(TOKENS).float(), 10000.0 ** -(torch.arange(0, SIZE, 2).float() / SIZE))
cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
x = torch.randn(1, TOKENS, WIDTH)

compiled = torch.compile(layer, backend="maco", options={"strict": True})
with torch.no_grad():
    y = compiled(x.to(DEVICE), cos.to(DEVICE), sin.to(DEVICE))
    torch.testing.assert_close(y.cpu(), reference(x, cos, sin), rtol=1e-3, atol=1e-4)
    report = maco.explain(layer, x.to(DEVICE), cos.to(DEVICE), sin.to(DEVICE))
print(f"rank {rank} of {world}: a Llama layer on {DEVICE}: {str(report).splitlines()[0]}")

# Training: the gradients of a rank's part are the parts of the whole layer's.
trained = torch.compile(layer, backend="maco")
trained(x.to(DEVICE), cos.to(DEVICE), sin.to(DEVICE)).square().mean().backward()
reference(x, cos, sin).square().mean().backward()
gate = reference.gate.weight.grad.chunk(world, 0)[rank]
down = reference.down.weight.grad.chunk(world, 1)[rank]
torch.testing.assert_close(layer.gate.weight.grad.cpu(), gate, rtol=1e-3, atol=1e-6)
torch.testing.assert_close(layer.down.weight.grad.cpu(), down, rtol=1e-3, atol=1e-6)
torch.testing.assert_close(layer.input_norm.weight.grad.cpu(), reference.input_norm.weight.grad, rtol=1e-3, atol=1e-6)
print(f"rank {rank} of {world}: its gradients, as the whole layer's")
