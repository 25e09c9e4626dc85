"""MACO as a backend of torch.compile: `torch.compile(model, backend="maco")`, and `maco.compile`, which needs no registration.

Forward and backward go through AOT autograd to `compile_fx`. Weights are inputs of the graphs, and read where they are.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from .compiled import CompiledFunction, CompiledModule, patiently
from .errors import Error, ErrorCode
from .fx import Options, compile_fx
from .fx_report import Report
from .fx_together import Together, together
from .words import chosen, suggestion

__all__ = ["compile", "explain", "maco_backend", "options_of", "register"]

aten = torch.ops.aten

OPTIONS = ("strict", "dynamic", "sm_roles", "min_ops", "overlap", "timeout")
OVERLAP = ("none", "conservative", "aggressive")

LONGEST = 365 * 24 * 3600.0  # seconds, of a launch's time-out

MOST_TRACED = 1024
"""Of so many functions the shapes of their last graph are known."""

_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)

_DECOMPOSED = (
    "addcmul", "glu", "hardsigmoid", "hardswish", "l1_loss", "mse_loss", "mse_loss_backward", "native_dropout_backward", "stack",
)  # fmt: skip


def options_of(options: Mapping[str, Any] | None = None, **more: Any) -> Options:
    """Options as torch.compile's `options=` has them. Raises `maco.Error` for unknown ones, TypeError for values of other types."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options are a dict, not a {type(options).__name__}")
    told = {**(options or {}), **more}
    for key in told:
        if key not in OPTIONS:
            raise Error(f"the backend 'maco' has no option '{key}'; {suggestion(str(key), OPTIONS)}")
    for key in ("strict", "dynamic"):
        if not isinstance(told.get(key), (bool, type(None))):
            raise TypeError(f"'{key}' is True or False, not {told[key]!r}")
    if told.get("strict") is None:
        told.pop("strict", None)
    least = told.get("min_ops", 1)
    if isinstance(least, bool) or not isinstance(least, int):
        raise TypeError(f"'min_ops' is a number of ops, not {least!r}")
    if least < 1:
        raise Error(f"'min_ops' is a number of ops, at least 1, not {least}")
    if (limit := told.get("timeout")) is not None:
        if isinstance(limit, bool) or not isinstance(limit, (int, float)):
            raise TypeError(f"'timeout' is a number of seconds, not {limit!r}")
        if not 0.001 <= limit <= LONGEST:
            raise Error(f"'timeout' is from 0.001 seconds to a year, not {limit}")
    overlap = told.get("overlap")
    if isinstance(overlap, bool):
        told["overlap"] = "aggressive" if overlap else "none"
    elif overlap is not None:
        chosen(overlap, OVERLAP, "'overlap'")
    return Options(**told)


def maco_backend(gm: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """What torch.compile calls with a graph of Dynamo's. What fails raises where the compiled function is called.

    `options` has strict, dynamic, sm_roles, min_ops, overlap and timeout.
    """
    try:
        if (mode := more.pop("mode", None)) not in (None, "default"):
            raise Error(f"the mode '{mode}' is one of Inductor's; the backend 'maco' has none, but options: {', '.join(OPTIONS)}")
        try:
            own = options_of(options, **more)
        except TypeError as error:
            return _raising(error)
        return _aot(own, again=_recompilation(gm, example_inputs))(gm, example_inputs)
    except Error as error:
        return _raising(error)


def _raising(error: Exception) -> Callable[..., Any]:
    """Raises at its calls: torch would wrap what a backend raises."""

    def fail(*_: Any) -> Any:
        raise error

    fail._boxed_call = True  # type: ignore[attr-defined]
    return fail


def _aot(options: Options, report: Report | None = None, again: str = "") -> Any:
    """AOT autograd with MACO's compilers. With a `report` nothing is compiled: torch runs, and the report says what would run where.

    `again` says why the function is compiled again, if it is.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition

    backward_options, forward_options = options, replace(options, guarded=True)  # Dynamo guards what comes from the caller

    def compiler(backward: bool) -> Callable[[GraphModule, Sequence[Any]], Any]:
        def compile_graph(gm: GraphModule, inputs: Sequence[Any]) -> Any:
            static = () if backward else _static()
            options = backward_options if backward else forward_options
            try:
                if report is None and together(gm):
                    return _boxed(Together(gm, inputs, options, static, again).run)
                compiled = compile_fx(gm, inputs, options=options, static=static)
            except Error as error:
                return _raising(error)
            except _FAULTS as error:
                why = f"MACO failed to compile a graph of {len(gm.graph.nodes)} nodes: {type(error).__name__}: {error}"
                if options.strict:
                    return _raising(Error(why, code=ErrorCode.INTERNAL))
                warnings.warn(f"{why}; torch runs it", stacklevel=2)
                return _boxed(gm.forward)
            if report is not None:
                if backward:
                    for row in compiled.report.table:
                        row["pass"] = "backward"
                    compiled.report.backward_launches = len(compiled.report.graphs)
                report.add(compiled.report)
                return _boxed(gm.forward)
            return _boxed(compiled.run)

        return compile_graph

    return aot_autograd(
        fw_compiler=compiler(False),
        bw_compiler=compiler(True),
        inference_compiler=compiler(False),
        decompositions=_decompositions(),
        partition_fn=default_partition,
        keep_inference_input_mutations=True,
    )


def _boxed(run: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    def boxed(inputs: list[Any]) -> Any:
        given = tuple(inputs)
        inputs.clear()
        return run(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _static() -> Sequence[int]:
    """Which inputs are parameters and buffers, as far as torch says."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return tuple(getattr(metadata, "static_input_indices", None) or ())


@functools.cache
def _decompositions() -> Mapping[Any, Any]:
    """Decompositions of ops that MACO doesn't have into ops that it has."""
    from torch._decomp import get_decompositions

    found: Mapping[Any, Any] = get_decompositions([getattr(aten, name) for name in _DECOMPOSED])
    return found


# ---- being found by torch


def register() -> None:
    """Names the backend "maco", unless an installed package's entry point has done it."""
    from torch._dynamo.backends import registry  # noqa: F401  maco.registration registers the backend at this import

    from .registration import register_compiler

    register_compiler()


# ---- recompilations

_warned: set[Any] = set()
_traced: dict[Any, dict[str, str]] = {}  # by frame: inputs of its last graph as text


def _recompilation(gm: GraphModule, inputs: Sequence[Any]) -> str:
    """Why torch compiles the graph's function again, if it did so for other inputs before. Warns once if torch will soon stop."""
    identity = torch._guards.CompileContext.current_compile_id()
    if identity is None or identity.frame_compile_id is None:
        return ""
    _count_compilation(identity)
    names = [node.name.removeprefix("l_").removesuffix("_") for node in gm.graph.nodes if node.op == "placeholder"]
    found = {name: _shape(one) for name, one in zip(names, inputs, strict=False) if isinstance(one, torch.Tensor)}
    before = _traced.get(identity.frame_id)
    if len(_traced) >= MOST_TRACED:
        _traced.clear()
    _traced[identity.frame_id] = found
    if not identity.frame_compile_id or before is None:
        return ""
    other = [f"{name} is {text} and was {before[name]}" for name, text in found.items() if before.get(name, text) != text]
    return f" again, since {', '.join(other[:3])}" if other else " again (TORCH_LOGS=recompiles says why)"


def _shape(x: torch.Tensor) -> str:
    sizes = [one.node.hint if isinstance(one, torch.SymInt) else one for one in x.shape]
    return f"{str(x.dtype).removeprefix('torch.')}[{', '.join(map(str, sizes))}]"


def _count_compilation(identity: Any) -> None:
    """Warns once of a function that torch is about to stop compiling."""
    limit = getattr(torch._dynamo.config, "recompile_limit", None) or getattr(torch._dynamo.config, "cache_size_limit", 8)
    if identity.frame_compile_id + 1 >= limit and identity.frame_id not in _warned:
        _warned.add(identity.frame_id)
        warnings.warn(
            f"a function was compiled {identity.frame_compile_id + 1} times, torch's limit: with other sizes or values again torch runs it "
            f"eagerly, without MACO. TORCH_LOGS=recompiles says what differs; torch._dynamo.mark_dynamic() or options dynamic help where "
            f"it is the number of rows",
            stacklevel=2,
        )


# ---- frames


def _frame(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or a call of the module, with code of its own: torch counts what it compiles for each code."""
    if isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
        return types.MethodType(_frame(function.__func__), function.__self__)
    if not isinstance(function, types.FunctionType):

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        call.__code__ = call.__code__.replace()
        return call
    code, names = function.__code__.replace(), function.__globals__
    made = types.FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# ---- without a registration


_backends: dict[str, Callable[..., Any]] = {}


def _backend_of(options: Options) -> Callable[..., Any]:
    """The backend's function for these options: the same for equal ones, so that torch finds what it compiled with them."""
    key = repr(options)
    found = _backends.get(key)
    if found is None:

        def maco(gm: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Any:
            try:
                return _aot(options, again=_recompilation(gm, example_inputs))(gm, example_inputs)
            except Error as error:
                return _raising(error)

        found = _backends.setdefault(key, maco)
    return found


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, **options: Any) -> Any:
    """Compiles a module or a function: `torch.compile` with MACO as the backend, no matter whether it is registered.

    `options` are strict, sm_roles, min_ops, overlap and timeout; `dynamic` is torch.compile's: whether sizes vary (None: once they do).
    Without `model` a decorator. What it gives behaves as torch.compile's result, and can't be pickled: what was compiled can. Raises
    `maco.Error` for unknown options, and for `fullgraph` and `dynamic` of a graph of MACO's.
    """
    from .graph import Graph, compile_graph

    if isinstance(model, (Graph, str)) or hasattr(model, "__fspath__"):
        for name, value, default in (("fullgraph", fullgraph, False), ("dynamic", dynamic, None)):
            if value is not default:
                raise Error(
                    f"'{name}' is for what torch traces, functions and modules; a graph of MACO's is whole, and says its dims itself"
                )
        return compile_graph(model, **options)
    own = options_of(options, dynamic=dynamic)
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, **options)
    arguments = {"fullgraph": fullgraph, "dynamic": dynamic}
    register()
    if isinstance(model, torch.nn.Module):
        made = torch.compile(model, backend=_backend_of(own), **arguments)  # type: ignore[call-overload]
        if type(model).forward.__module__.startswith("torch."):
            # All modules of torch's own would share a frame, and its limit of recompilations.
            made.forward = made.dynamo_ctx(_frame(model))
        made.__class__ = CompiledModule
        object.__setattr__(made, "_maco_arguments", {**arguments, **options})
        return made
    if not callable(model):
        raise TypeError(f"compile() takes a module, a function, or a graph of MACO's, not a {type(model).__name__}")
    if isinstance(model, type):
        raise TypeError(f"compile() takes an instance of {model.__name__}, not the class: maco.optimize decorates classes")
    compiled = torch.compile(model, backend=_backend_of(own), **arguments)  # type: ignore[call-overload]
    return CompiledFunction(model, compiled, {**arguments, **options})


# ---- reports


def explain(function: Any, /, *args: Any, **kwargs: Any) -> Report:
    """What MACO makes of a function or module with these arguments: which ops it computes, which are left to torch, where and why.

    Runs the function once, in torch, and compiles no kernel. Where its results need gradients, the report has the backward pass, too. Of
    what maco.compile or a decorator gave, the report is for its options; but with strict it lists what would be an error.
    """
    told = dict(getattr(function, "_maco_arguments", {}))
    told.pop("fullgraph", None)
    options = replace(options_of(told), dry=True, strict=False)
    function = _uncompiled(function)
    report = Report()
    breaks: list[str] = []

    def backend(gm: GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
        reason = gm.compile_subgraph_reason if hasattr(gm, "compile_subgraph_reason") else None
        if reason is not None and reason.graph_break:
            place = f" at {reason.user_stack[-1].filename}:{reason.user_stack[-1].lineno}" if reason.user_stack else ""
            breaks.append(f"{str(reason.reason).splitlines()[0]}{place}")
        return _aot(options, report)(gm, inputs)

    from torch._functorch import config

    # Else torch may wait for the backward pass itself.
    ahead = {"force_non_lazy_backward_lowering": True}
    with config.patch({key: value for key, value in ahead.items() if hasattr(config, key)}):
        patiently(torch.compile(_frame(function), backend=backend, dynamic=options.dynamic), args, kwargs)
    report.breaks = breaks
    return report


def _uncompiled(function: Any) -> Any:
    """The function or module from which torch.compile or maco.compile made `function`."""
    if isinstance(function, CompiledFunction):
        return function.__wrapped__  # type: ignore[attr-defined]
    if isinstance(function, torch.nn.Module):
        return getattr(function, "_orig_mod", function)
    return getattr(function, "_torchdynamo_orig_callable", function)
