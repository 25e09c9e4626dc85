"""The task graph of a persistent kernel: a `Graph` whose operands are registered tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .dtypes import DType, DTypeLike
from .errors import Error
from .expressions import ExprLike
from .graph import Graph, Value, _Where
from .words import suggestion

if TYPE_CHECKING:
    from .persistent import PersistentKernel

__all__ = ["TaskGraph"]


class TaskGraph(Graph):
    """The graph of a `PersistentKernel`: MACO's ops as methods, on registered tensors and results of other ops.

    Each op takes `output=`: a registered output, which becomes its result, or one for each of several results. A registered tensor that
    an op writes `into` is a state, and changed in place.
    """

    def __init__(self, kernel: PersistentKernel, name: str, world: int) -> None:
        self._kernel = kernel
        self._building = True
        super().__init__(name, world)
        self._values: dict[str, Value] = {}  # of registered tensors
        self._lines: dict[str, int] = {}  # where they are declared
        self._made: dict[str, _Where] = {}  # outputs that an op makes
        self._results: list[tuple[Value, str]] = []  # results that were given names
        self._read: set[tuple[int, int]] = set()
        self._building = False

    # ---- what Graph calls

    def _open(self) -> _Where:
        if not self._building:
            raise Error("a task graph grows in its 'with kernel.task_graph()' block only")
        return super()._open()

    def _ops(self, kind: str, operands: Sequence[Any], results: int, attributes: Mapping[str, Any], common: Any) -> tuple[Value, ...]:
        told = dict(common)
        output = told.pop("output", None)
        if told.get("into") is not None:
            told["into"] = self._state(told["into"], kind)
        if attributes.get("reduce") == "mean":  # maco.AVG
            attributes = {**attributes, "reduce": "avg"}
        found = [self._resolved(operand, kind) for operand in operands]
        self._note(found)
        made = super()._ops(kind, found, results, attributes, told)
        if told.get("name"):
            self._results += [
                (value, f"{told['name']}.{i}" if i else told["name"]) for i, value in enumerate(made) if value.kind != "state"
            ]
        if output is not None:
            self._outputs(kind, made, output)
        return made

    def cuda(self, *operands: Any, args: Sequence[Any], types: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """A CUDA kernel of the user's, as `Graph.cuda`. `args` and `types` may have registered tensors; those in `types` are states."""
        output = more.pop("output", None)

        def known(value: Any) -> Any:
            return self._resolved(value, "cuda") if self._kernel._is_registered(value) else value

        for key in ("reads", "writes"):
            if more.get(key) is not None:
                more[key] = {known(one): where for one, where in more[key].items()}
        given = [known(one) for one in args]
        self._note([one for one in given if isinstance(one, Value)])
        states = {key: self._state(one, "cuda") if self._kernel._is_registered(one) else one for key, one in (types or {}).items()}
        if more.get("into") is not None:
            more["into"] = self._state(more["into"], "cuda")
        made = super().cuda(*operands, args=given, types=states or None, **more)
        values = made if isinstance(made, tuple) else (made,)
        self._results += [(value, value.name) for value in values if value.kind != "state"]
        if output is not None:
            self._outputs("cuda", values, output)
        return made

    cuda.__doc__ = Graph.cuda.__doc__

    def output(self, name: str, value: Any) -> Value:
        """Gives a value out under this name, as `Graph.output`; the kernel allocates it, unless one of that name is registered."""
        found = self._resolved(value, "output")
        self._note([found])
        if name in self._kernel._outputs:
            return self.copy(found, output=name)  # type: ignore[call-arg]
        made = super().output(name, found)
        self._made[name] = self._where_of(made)
        return made

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[ExprLike]) -> Value:
        """Not of a task graph: its inputs are registered tensors."""
        raise Error(f"the tensor '{name}' of a task graph comes from kernel.register_tensor(t, name='{name}')")

    def param(self, name: str, dtype: DTypeLike, shape: Sequence[ExprLike]) -> Value:
        """Not of a task graph: its params are registered tensors."""
        return self.input(name, dtype, shape)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("can't pickle a task graph: pickle its text()")

    # ---- inside

    def _where_of(self, value: Value) -> _Where:
        assert value._op is not None
        return value._op.where

    def _register(self, name: str, text: str, where: _Where, dtype: DType) -> None:
        """Declares a tensor; that an op writes it is found out later."""
        self._take(name, f"the tensor '{name}'")
        self._lines[name] = len(self._items)
        self._items.append((where, f"param {text}"))
        self._values[name] = Value(self, None, 0, name, "param", dtype)

    def _resolved(self, operand: Any, kind: str) -> Any:
        if isinstance(operand, Value):
            return operand
        name = self._kernel._name_of(operand)
        if name is None:
            if self._kernel._is_tensor(operand):
                raise Error(f"an operand of '{kind}' is a tensor that isn't registered: kernel.register_tensor() takes it")
            return operand
        if name in self._kernel._outputs and name not in self._values:
            raise self._wrong(f"'{name}' is read before an op has it as its output")
        return self._values[name]

    def _note(self, values: Sequence[Any]) -> None:
        for value in values:
            if isinstance(value, Value) and value._op is not None:
                self._read.add((id(value._op), value._index))

    def _state(self, value: Any, kind: str) -> Any:
        """Makes a registered tensor that an op writes a state."""
        found = self._resolved(value, kind)
        if isinstance(found, Value) and found.kind == "param":
            name = found._declared
            self._kernel._writable(name)
            where, line = self._items[self._lines[name]]
            self._items[self._lines[name]] = (where, "state" + line.removeprefix("param"))
            found.kind = "state"
        return found

    def kv_append(self, cache: Any, x: Any, *, at: ExprLike, **common: Any) -> Value:
        """Rows at .. at + T of a registered cache[S,W] become x[T,W], as `Graph.kv_append`. Gives the cache."""
        state = self._state(cache, "kv_append")
        return super().kv_append(state, x, at=at, **common)

    def _outputs(self, kind: str, made: Sequence[Value], output: Any) -> None:
        chosen = list(output) if isinstance(output, (list, tuple)) else [output]
        if len(chosen) != len(made):
            raise self._wrong(f"'{kind}' has {len(made)} results, but {len(chosen)} outputs")
        for value, one in zip(made, chosen, strict=True):
            if one is None:
                continue
            name = one if isinstance(one, str) else self._kernel._name_of(one)
            declared = self._kernel._outputs.get(name or "")
            if name is None or declared is None:
                if isinstance(one, str) or name is not None:
                    hint = suggestion(str(name), self._kernel._outputs)
                    raise Error(f"'{name}' isn't a registered output; {hint}")
                raise Error(f"output= of '{kind}' takes what register_output() gave, not a {type(one).__name__} that isn't registered")
            if name in self._made:
                raise self._wrong(f"'{name}' is the output of two ops")
            where = self._items[-1][0]
            op = value._op
            if value.kind == "state" or kind == "cuda":
                # What has a name and memory of its own is copied.
                self._made[name] = where
                self._note([value])
                copied = super()._ops("copy", [value], 1, {}, {"dtype": declared.dtype})[0]
                value, op = copied, copied._op
            assert op is not None
            self._made[name] = where
            if op.names[value._index]:
                self._results = [(one, called) for one, called in self._results if one is not value]
            op.names[value._index] = name
            self._take(name, f"the output '{name}'")
            # Declared in front of its op, so that the compiler compares shape and dtype.
            at = next(i for i, (_, item) in enumerate(self._items) if item is op)
            self._items.insert(at, (where, f"output {declared.text}"))
            self._lines.update({key: line + 1 for key, line in self._lines.items() if line >= at})
            value.dtype = declared.dtype
            self._values[name] = value

    def _finish(self) -> None:
        """Results that have names, and that nothing reads, become outputs."""
        for value, name in self._results:
            op = value._op
            assert op is not None
            if (id(op), value._index) not in self._read and not op.outputs[value._index] and name not in self._made:
                made = super().output(name, value)
                self._made[name] = self._where_of(made)
        missing = [name for name in self._kernel._outputs if name not in self._made]
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            raise Error(f"no op of the task graph makes the output {names}: give it to one as output=")
