"""Layers whose weights lie on several ranks: each rank holds its part, and the gradients are those of the whole layer.

x is the same on all ranks in front of a column-parallel layer, and so is what a row-parallel layer gives. Attributes of all of them:
`in_features` and `out_features` are those of the whole layer; `weight` [out, in] is this rank's part, so that each rank's optimizer steps
its own.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from . import collectives, groups
from .errors import Error
from .groups import GroupLike
from .torch_ops import copy_to_ranks

__all__ = ["ColumnParallelLinear", "Module", "RowParallelLinear", "TPLinear"]


class Module(torch.nn.Module):
    """torch.nn.Module, whose subclasses may leave out `super().__init__()`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        torch.nn.Module.__init__(made)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # A subclass may have set attributes before it calls this.
        if "_parameters" not in self.__dict__:
            super().__init__()


class _Gather(torch.autograd.Function):
    """The parts of all ranks side by side on the last axis; all ranks go on with it alike, so the gradient is this rank's part."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: str) -> torch.Tensor:
        ctx.group, ctx.width = group, x.shape[-1]
        return _side_by_side(x, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        rank = groups.find(ctx.group).rank
        return grad.narrow(-1, rank * ctx.width, ctx.width), None


class _Scatter(torch.autograd.Function):
    """This rank's part of the last axis of what all ranks have alike; the gradient is that of all parts."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: str) -> torch.Tensor:
        ctx.group = group
        own = groups.find(group)
        width = x.shape[-1] // own.size
        return x.narrow(-1, own.rank * width, width).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _side_by_side(grad, ctx.group), None


def _side_by_side(x: torch.Tensor, group: str) -> torch.Tensor:
    """[..., n] of each rank gives [..., world * n]."""
    return torch.ops.maco.all_gather(x, group, "").movedim(0, -2).flatten(-2)


def _share(features: int, size: int, what: str) -> int:
    if features % size:
        raise Error(f"{what} is {features}, which can't be cut into {size} equal parts, one for each rank")
    return features // size


class _Parallel(Module):
    in_features: int
    out_features: int
    weight: torch.nn.Parameter
    bias: torch.nn.Parameter | None

    def _begin(self, in_features: int, out_features: int, group: GroupLike) -> groups.Group:
        for what, value in (("in_features", in_features), ("out_features", out_features)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{what} is a number of features, not a {type(value).__name__}")
            if value <= 0:
                raise Error(f"{what} is {value}; it is above 0")
        own = groups.of(group)
        self.in_features, self.out_features = in_features, out_features
        self._group = "" if group is None else own.name
        return own

    def reset_parameters(self) -> None:
        """Draws the weights of the whole layer, as torch.nn.Linear does, of which this rank keeps its part.

        Ranks whose random generators are in the same state hold the parts of one torch.nn.Linear. The whole weight is in memory meanwhile.
        """
        whole = torch.nn.Linear(
            self.in_features, self.out_features, self.bias is not None, device=self.weight.device, dtype=self.weight.dtype
        )
        self.take(whole)

    def take(self, whole: torch.nn.Linear) -> None:
        """Copies this rank's part of a torch.nn.Linear's weights."""
        weight, bias = self._part(whole.weight.detach()), None if whole.bias is None else self._part_of_bias(whole.bias.detach())
        if weight.shape != self.weight.shape or (bias is None) != (self.bias is None):
            raise Error(f"{whole} has other features, or a bias where this layer has none, or none where it has one: {self}")
        with torch.no_grad():
            self.weight.copy_(weight)
            if bias is not None and self.bias is not None:
                self.bias.copy_(bias)

    def _part(self, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _part_of_bias(self, bias: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class ColumnParallelLinear(_Parallel):
    """y = x W^T + b, of which each rank computes out_features / world columns.

    x [..., in_features] is the same on all ranks. Gives [..., out_features / world], this rank's columns, or with `gather_output`
    [..., out_features] on every rank. `weight` is [out_features / world, in_features], `bias` [out_features / world] or None.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        gather_output: bool = False,
        *,
        group: GroupLike = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        own = self._begin(in_features, out_features, group)
        self.gather_output = gather_output
        width = _share(out_features, own.size, "out_features")
        self.weight = torch.nn.Parameter(torch.empty(width, in_features, device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.empty(width, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] gives [..., out_features / world], or [..., out_features]."""
        y = F.linear(copy_to_ranks(x, self._group), self.weight, self.bias)
        return _Gather.apply(y, self._group) if self.gather_output else y

    def _part(self, weight: torch.Tensor) -> torch.Tensor:
        own = groups.find(self._group)
        return weight.chunk(own.size, 0)[own.rank]

    def _part_of_bias(self, bias: torch.Tensor) -> torch.Tensor:
        return self._part(bias)

    def extra_repr(self) -> str:
        """What `repr` says of it."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"gather_output={self.gather_output}"
        )


class RowParallelLinear(_Parallel):
    """y = x W^T + b, of which each rank computes a part of every sum; an all-reduce adds the parts.

    x is [..., in_features / world], this rank's columns, or with `input_is_parallel=False` [..., in_features], the same on all ranks. Gives
    [..., out_features] on every rank. `weight` is [out_features, in_features / world], `bias` [out_features] on every rank, or None.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        input_is_parallel: bool = True,
        *,
        group: GroupLike = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        own = self._begin(in_features, out_features, group)
        self.input_is_parallel = input_is_parallel
        width = _share(in_features, own.size, "in_features")
        self.weight = torch.nn.Parameter(torch.empty(out_features, width, device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features / world], or [..., in_features], gives [..., out_features]."""
        if not self.input_is_parallel:
            x = _Scatter.apply(x, self._group)
        y = torch.ops.maco.all_reduce(F.linear(x, self.weight), "sum", self._group, "")
        return y if self.bias is None else y + self.bias

    def _part(self, weight: torch.Tensor) -> torch.Tensor:
        own = groups.find(self._group)
        return weight.chunk(own.size, 1)[own.rank]

    def _part_of_bias(self, bias: torch.Tensor) -> torch.Tensor:
        return bias

    def extra_repr(self) -> str:
        """What `repr` says of it."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"input_is_parallel={self.input_is_parallel}"
        )


class TPLinear(Module):
    """y = x W^T, summed over the ranks: each holds `weight` [out_features, in_features / world], and gets its columns of x.

    x is [..., in_features / world]; gives [..., out_features] on every rank. What follows may overlap with the all-reduce. `world_size` is
    the number of ranks; it may be left out.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        world_size: int | None = None,
        *,
        group: GroupLike = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        own = groups.of(group)
        if world_size is not None and world_size != own.size:
            raise Error(f"world_size is {world_size}, but there are {own.size} ranks; start {world_size} processes, or leave it out")
        self.in_features, self.out_features, self.world_size = in_features, out_features, own.size
        self._group = "" if group is None else own.name
        width = _share(in_features, own.size, "in_features")
        self.weight = torch.nn.Parameter(torch.randn(out_features, width, device=device, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features / world] gives [..., out_features]."""
        group = groups.find(self._group) if self._group else None
        y: torch.Tensor = collectives.allreduce(torch.matmul(x, self.weight.T), overlap_with_next=True, group=group)
        return y

    def extra_repr(self) -> str:
        """What `repr` says of it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, world_size={self.world_size}"
