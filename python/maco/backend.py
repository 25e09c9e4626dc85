"""MACO as a backend of torch.compile: `torch.compile(model, backend="maco")`, and `maco.compile`, which needs no registration.

Forward and backward go through AOT autograd to `compile_fx`. Weights are inputs of the graphs, and read where they are.
"""

from __future__ import annotations

import difflib
import functools
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .errors import Error, ErrorCode
from .fx import Options, compile_fx
from .fx_report import Report
from .words import chosen

__all__ = ["compile", "explain", "maco_backend", "options_of", "register"]

aten = torch.ops.aten

OPTIONS = ("strict", "dynamic", "sm_roles", "min_ops", "overlap")
OVERLAP = ("none", "conservative", "aggressive")

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
            near = difflib.get_close_matches(str(key), OPTIONS, n=1)
            hint = f"did you mean '{near[0]}'? It" if near else "it"
            raise Error(f"the backend 'maco' has no option '{key}'; {hint} has {', '.join(OPTIONS)}")
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
    overlap = told.get("overlap")
    if isinstance(overlap, bool):
        told["overlap"] = "aggressive" if overlap else "none"
    elif overlap is not None:
        chosen(overlap, OVERLAP, "'overlap'")
    return Options(**told)


def maco_backend(gm: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """What torch.compile calls with a graph of Dynamo's. What fails raises where the compiled function is called.

    `options` has strict, dynamic, sm_roles, min_ops and overlap.
    """
    try:
        if (mode := more.pop("mode", None)) not in (None, "default"):
            raise Error(f"the mode '{mode}' is one of Inductor's; the backend 'maco' has none, but options: {', '.join(OPTIONS)}")
        try:
            own = options_of(options, **more)
        except TypeError as error:
            return _raising(error)
        _count_compilation()
        return _aot(own)(gm, example_inputs)
    except Error as error:
        return _raising(error)


def _raising(error: Exception) -> Callable[..., Any]:
    """Raises at its calls: torch would wrap what a backend raises."""

    def fail(*_: Any) -> Any:
        raise error

    fail._boxed_call = True  # type: ignore[attr-defined]
    return fail


def _aot(options: Options, report: Report | None = None) -> Any:
    """AOT autograd with MACO's compilers. With a `report` nothing is compiled: torch runs, and the report tells."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition

    def compiler(backward: bool) -> Callable[[GraphModule, Sequence[Any]], Any]:
        def compile_graph(gm: GraphModule, inputs: Sequence[Any]) -> Any:
            try:
                compiled = compile_fx(gm, inputs, options=options, static=() if backward else _static())
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
    """Ops that MACO hasn't, made of those that it has."""
    from torch._decomp import get_decompositions

    found: Mapping[Any, Any] = get_decompositions([getattr(aten, name) for name in _DECOMPOSED])
    return found


# ---- being found by torch


def register() -> None:
    """Names the backend "maco", unless an installed package's entry point has done it."""
    from torch._dynamo.backends import registry  # noqa: F401  maco.registration sees to it then

    from .registration import register_compiler

    register_compiler()


# ---- recompilations

_warned: set[Any] = set()


def _count_compilation() -> None:
    """Warns once of a function that torch is about to stop compiling."""
    identity = torch._guards.CompileContext.current_compile_id()
    if identity is None or identity.frame_compile_id is None:
        return
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


class _CompiledFunction:
    """A function that torch.compile gave with MACO as its backend."""

    def __init__(self, function: Callable[..., Any], options: Options, arguments: Mapping[str, Any]) -> None:
        self._maco_options = options
        self._compiled = torch.compile(function, backend=_backend_of(options), **arguments)
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        raise TypeError(f"can't pickle the compiled function '{getattr(self, '__name__', '')}': pickle the function that was compiled")

    def __repr__(self) -> str:
        return f"<maco.compile of {getattr(self, '__wrapped__', None)!r}>"


_module_class: Any = None


def _compiled_module() -> Any:
    """torch's OptimizedModule, which says what can be pickled."""
    global _module_class
    if _module_class is None:
        from torch._dynamo.eval_frame import OptimizedModule

        class CompiledModule(OptimizedModule):  # type: ignore[misc,valid-type]
            """A module that torch.compile gave with MACO as its backend."""

            def __reduce__(self) -> Any:
                raise TypeError(
                    f"can't pickle a compiled {type(self._orig_mod).__name__}: pickle the module that was compiled (._orig_mod), "
                    f"or its state_dict()"
                )

            def __deepcopy__(self, memo: Any) -> Any:
                import copy

                return compile(copy.deepcopy(self._orig_mod, memo), **self._maco_arguments)

        _module_class = CompiledModule
    return _module_class


_backends: dict[str, Callable[..., Any]] = {}


def _backend_of(options: Options) -> Callable[..., Any]:
    """One function for equal options, so that torch finds what it compiled with them."""
    key = repr(options)
    found = _backends.get(key)
    if found is None:

        def maco(gm: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Any:
            try:
                _count_compilation()
                return _aot(options)(gm, example_inputs)
            except Error as error:
                return _raising(error)

        found = _backends.setdefault(key, maco)
    return found


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, **options: Any) -> Any:
    """Compiles a module or a function: `torch.compile` with MACO as the backend, no matter whether it is registered.

    `options` are strict, sm_roles, min_ops and overlap; `dynamic` is torch.compile's: whether sizes vary (None: once they do). Without
    `model` a decorator. What it gives behaves as torch.compile's result, and can't be pickled: what was compiled can. Raises `maco.Error`
    for unknown options.
    """
    from .graph import Graph, compile_graph

    if isinstance(model, (Graph, str)) or hasattr(model, "__fspath__"):
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
        made.__class__ = _compiled_module()
        object.__setattr__(made, "_maco_arguments", {**arguments, **options})
        return made
    if not callable(model):
        raise TypeError(f"compile() takes a module, a function, or a graph of MACO's, not a {type(model).__name__}")
    if isinstance(model, type):
        raise TypeError(f"compile() takes an instance of {model.__name__}, not the class: maco.optimize decorates classes")
    return _CompiledFunction(model, own, arguments)


# ---- reports


def explain(function: Any, /, *args: Any, **kwargs: Any) -> Report:
    """What MACO makes of a function or module with these arguments: which ops it computes, which are left to torch, where and why.

    Runs the function once, in torch, and compiles no kernel. Where its results need gradients, the report has the backward pass, too.
    """
    function = _uncompiled(function)
    report = Report()
    breaks: list[str] = []

    def backend(gm: GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
        reason = gm.compile_subgraph_reason if hasattr(gm, "compile_subgraph_reason") else None
        if reason is not None and reason.graph_break:
            place = f" at {reason.user_stack[-1].filename}:{reason.user_stack[-1].lineno}" if reason.user_stack else ""
            breaks.append(f"{str(reason.reason).splitlines()[0]}{place}")
        return _aot(Options(dry=True), report)(gm, inputs)

    from torch._functorch import config

    # Else torch may wait for the backward pass itself.
    ahead = {"force_non_lazy_backward_lowering": True}
    with config.patch({key: value for key, value in ahead.items() if hasattr(config, key)}):
        torch.compile(_frame(function), backend=backend)(*args, **kwargs)
    report.breaks = breaks
    return report


def _uncompiled(function: Any) -> Any:
    """What was compiled, of what torch.compile or maco.compile gave."""
    if isinstance(function, _CompiledFunction):
        return function.__wrapped__  # type: ignore[attr-defined]
    if isinstance(function, torch.nn.Module):
        return getattr(function, "_orig_mod", function)
    return getattr(function, "_torchdynamo_orig_callable", function)
