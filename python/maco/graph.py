"""Task graphs, built call by call, parsed from text or read from a file."""

from __future__ import annotations

import ctypes
import difflib
import json
import linecache
import math
import operator
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from .dtypes import DType, DTypeLike, as_dtype
from .errors import Diagnostic, Error, GraphError
from .expressions import Expr, ExprLike, expression
from .ops import COMMON, Ops

if TYPE_CHECKING:
    from .kernel import Kernel
    from .mscclpp._places import Places
    from .mscclpp._sizes import Limit
    from .mscclpp.program import CollectiveProgram

__all__ = ["Graph", "Value", "compile_graph"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")
_PROGRAM = re.compile(r"<collectives (\d+)>\Z")
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class _Where(NamedTuple):
    """A place in the caller's Python."""

    file: str
    line: int


def _caller() -> _Where:
    """The first frame outside of this package, and of PyTorch, whose frames stand between for what it doesn't trace and its operators."""
    frame = sys._getframe(1)
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    inside = (_PACKAGE, os.path.dirname(torch) + os.sep) if torch else (_PACKAGE,)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return _Where(frame.f_code.co_filename, frame.f_lineno)


class Value:
    """A tensor of a graph that is being built. Of no use in another graph.

    `+ - *` and `@` are the ops add, sub, mul and matmul; numbers may stand on either side of the first three. It has no elements, and so no
    truth value.
    """

    __slots__ = ("_declared", "_graph", "_index", "_op", "dtype", "kind")

    def __init__(self, graph: Graph, op: _Op | None, index: int, declared: str = "", kind: str = "", dtype: DType | None = None) -> None:
        self._graph = graph
        self._op = op
        self._index = index
        self._declared = declared
        self.kind = kind
        """"input", "param" or "state" of what was declared; "" of results."""
        self.dtype = dtype
        """Of what was declared, and of results whose op was told; else None: the compiler knows."""

    @property
    def graph(self) -> Graph:
        """The graph that it belongs to."""
        return self._graph

    @property
    def name(self) -> str:
        """What it is called in the graph's text. That of a result without a name may change while the graph grows."""
        return self._graph._name_of(self)

    def __repr__(self) -> str:
        return f"<maco.Value '{self.name}' of graph '{self._graph.name}'>"

    def __bool__(self) -> bool:
        raise TypeError("a tensor of a graph has no elements before it is launched, and no truth value")

    def __iter__(self) -> Any:
        raise TypeError("a tensor of a graph can't be iterated over; use split()")

    def __add__(self, other: Value | float) -> Value:
        return self._graph.add(self, other) if _operand(other) else NotImplemented

    def __radd__(self, other: float) -> Value:
        return self._graph.add(self, other) if _operand(other) else NotImplemented

    def __sub__(self, other: Value | float) -> Value:
        return self._graph.sub(self, other) if _operand(other) else NotImplemented

    def __rsub__(self, other: float) -> Value:
        return self._graph.add(self._graph.mul(self, value=-1), other) if _operand(other) else NotImplemented

    def __mul__(self, other: Value | float) -> Value:
        return self._graph.mul(self, other) if _operand(other) else NotImplemented

    def __rmul__(self, other: float) -> Value:
        return self._graph.mul(self, other) if _operand(other) else NotImplemented

    def __neg__(self) -> Value:
        return self._graph.mul(self, value=-1)

    def __matmul__(self, other: Value) -> Value:
        return self._graph.matmul(self, other) if isinstance(other, Value) else NotImplemented

    def __truediv__(self, other: object) -> Value:
        raise TypeError("MACO has no op that divides; multiply by 1 / number")


def _operand(other: object) -> bool:
    return isinstance(other, Value) or (isinstance(other, (int, float)) and not isinstance(other, bool))


class _Op:
    """A call of an op."""

    def __init__(self, kind: str, operands: Sequence[Value], where: _Where, attributes: dict[str, Any], common: dict[str, Any]) -> None:
        self.kind = kind
        self.operands = operands
        self.where = where
        self.attributes = attributes
        self.common = common
        self.into: list[Value | None] = []  # the state that result i becomes
        self.names: list[str] = []  # of results; "": none was given
        self.outputs: list[str] = []  # the output that result i is; "": none
        self.output_wheres: list[_Where] = []  # where that is said
        self.own = ""  # its name, if it isn't that of a result
        self.types: dict[str, tuple[DType, list[ExprLike]]] = {}  # of `cuda`
        self.referred = False  # by `after` and the like


class Graph(Ops):
    """A task graph that `world` ranks run together; shapes are what one rank holds.

    Built by declarations and ops, or from text by `parse` and `read`. Names begin with a letter or _ and have letters, digits, _ and dots.
    `name` is the graph's, `world` the number of ranks. Graphs can be pickled. Building isn't thread safe; a graph that nobody builds may
    be used by several threads. Its compiled form is kept until the graph changes.
    """

    def __init__(self, name: str, world: int = 1) -> None:
        self._where = _caller()
        self.name = name
        if isinstance(world, bool) or not isinstance(world, int):
            raise TypeError(f"world is a number of ranks, not {type(world).__name__}")
        self.world = world
        self._items: list[tuple[_Where, Any]] = []  # declarations' and settings' text, or ops
        self._taken: set[str] = set()
        self._collectives: list[str] = []
        self._places: dict[int, Places] = {}  # of the texts of programs, by number from 1: the caller's lines
        self._programs: dict[str, CollectiveProgram] = {}  # by their collectives' names
        self._limits: list[Limit | tuple[_Op, CollectiveProgram]] = []  # how large messages of programs may be
        self._parsed: tuple[str, str] | None = None  # text and name, of a graph that wasn't built here
        self._handle: _native.Handle | None = None
        self._frozen: list[tuple[str, _Where | None]] | None = None  # lines of a built graph that was pickled
        self._check_name(name, "the graph")

    # ---- declarations

    @property
    def rank(self) -> Expr:
        """The rank that runs the graph, as an expression."""
        return Expr("rank")

    def dim(self, name: str, max: int, min: int = 1, typical: int | None = None) -> Expr:
        """A number of rows that each launch says, from `min` to `max`; `max` if it doesn't.

        `typical` is what the compiler chooses for. A dim may be the extent of axis 0.
        """
        low = "" if int(min) == 1 else f"{int(min)} <= "
        self._declare(name, f"dim {low}{name} <= {int(max)}{_typical(typical)}")
        return Expr(name)

    def scalar(self, name: str, lo: int, hi: int, typical: int | None = None) -> Expr:
        """A number that each launch is given, from `lo` up to `hi`, which is excluded."""
        self._declare(name, f"scalar {name} in [{int(lo)}, {int(hi)}){_typical(typical)}")
        return Expr(name)

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[ExprLike]) -> Value:
        """A tensor that the caller writes before each launch. `shape` has 1 to 4 extents; that of axis 0 may use dims."""
        return self._tensor("input", name, dtype, shape)

    def param(self, name: str, dtype: DTypeLike, shape: Sequence[ExprLike]) -> Value:
        """A tensor that the caller writes once, for all launches. `shape` as of `input`."""
        return self._tensor("param", name, dtype, shape)

    def state(self, name: str, dtype: DTypeLike, shape: Sequence[ExprLike]) -> Value:
        """A tensor that the graph changes in place and keeps between launches; zero at first, unless bound. `shape` as of `input`."""
        return self._tensor("state", name, dtype, shape)

    def output(self, name: str, value: Value) -> Value:
        """Gives a value out under this name. It may be read further.

        A result becomes the output itself. Of an input, a param, a state, an output, and results of kernels of the user's under another
        name, it is a copy. Gives the output.
        """
        where = self._open()
        self._own(value, "output", 0)
        self._check_name(name, "the output")
        op = value._op
        free = op is not None and op.into[value._index] is None and not op.outputs[value._index]
        if op is not None and free and (op.kind != "cuda" or op.names[value._index] == name):
            if op.names[value._index] != name:
                self._take(name, "the output")
            # An op with several results has all of them as outputs; otherwise each output is a copy.
            op.outputs[value._index] = name
            op.output_wheres[value._index] = where
            return value
        self._take(name, "the output")
        copied = self._ops("copy", [value], 1, {}, {})[0]
        assert copied._op is not None
        copied._op.outputs[0] = name
        return copied

    def set(self, key: str | None = None, value: Any = None, /, **settings: Any) -> None:
        """Settings of the graph by their keys in JSON: `g.set(backend="nccl", sm_roles={"compute": 96, "comm": 32})`.

        The keys are sm_roles, schedule, overlap, overlap_regions, phases, pipeline, backend, comm_buffer_bytes; docs/language.md says what
        they take. A key may be given once.
        """
        where = self._open()
        if key is not None:
            settings = {key: value, **settings}
        elif not settings:
            raise TypeError("set() takes a key and a value, or keywords")
        for one, chosen in settings.items():
            self._check_name(one, "the setting")
            self._items.append((where, _Setting(one, chosen)))

    def phase(self, name: str, depends_on: str | Sequence[str] = ()) -> str:
        """A phase: its ops start after all ops of the phases that it depends on. Gives its name, for `phase=` of ops."""
        where = self._open()
        before = [depends_on] if isinstance(depends_on, str) else list(depends_on)
        for one in [name, *before]:
            self._check_name(one, "the phase")
        self._items.append((where, f"phase {name}" + (f" depends_on {', '.join(before)}" if before else "")))
        return name

    def region(self, name: str, ops: Sequence[Value | str]) -> None:
        """An overlap region: its ops may run together, and ops behind the last of them wait for all."""
        where = self._open()
        self._check_name(name, "the region")
        self._items.append((where, _Region(name, self._references(ops))))

    def pipeline(self, stages: Sequence[Sequence[Value | str]], microbatches: ExprLike) -> None:
        """Cuts rows into microbatches, and lets stages, lists of ops, overlap."""
        where = self._open()
        self._items.append((where, _Pipeline([self._references(stage) for stage in stages], microbatches)))

    def collective(self, text: str | CollectiveProgram) -> None:
        """A text of collectives, or a program, that ops may name as their `algorithm` (docs/algorithms.md, docs/mscclpp.md).

        A program's name is its `identifier`; ops may also be given the program itself, without this call.
        """
        self._open()
        if isinstance(text, str):
            self._collectives.append(text)
        else:
            self._add_program(text)

    # ---- text

    def text(self, *, canonical: bool = False) -> str:
        """The graph in MACO's language, as `.maco` files have it.

        What is written down, unchecked; with `canonical` checked and in MACO's one fixed form, in which equal graphs are equal. Raises
        `maco.GraphError` then, if the graph is wrong.
        """
        if canonical:
            with self._use() as handle:
                return _native.taken_string(_native.library().maco_graph_text(handle))
        if self._parsed is not None:
            return self._parsed[0]
        return "\n".join(line for line, _ in self._written()) + "\n"

    def check(self) -> None:
        """Raises `maco.GraphError` if the graph is wrong; its diagnostics have the lines of the calls in Python."""
        with self._use():
            pass

    @classmethod
    def parse(cls, text: str, name: str | None = None, collectives: Sequence[str] = ()) -> Graph:
        """Parses text, JSON or MACO's language. `name` is what messages call it; sources of ops `cuda` are relative to its folder.

        `collectives` are texts of collectives that ops may name as their `algorithm`. Raises `maco.GraphError`, whose diagnostics have
        lines and columns of the text. The graph can't be built further.
        """
        if not isinstance(text, str):
            raise TypeError(f"a graph is parsed from a string, not a {type(text).__name__}; Graph.read() takes files")
        graph = cls.__new__(cls)
        graph._where = _caller()
        graph._restore(text, name or "<graph>", list(collectives))
        return graph

    @classmethod
    def read(cls, path: str | os.PathLike[str], collectives: Sequence[str] = ()) -> Graph:
        """Parses a file, as `parse` does a text. Raises `maco.Error` if it can't be read."""
        file = os.fspath(path)
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Error(f"'{file}' can't be read: {error}") from error
        return cls.parse(text, file, collectives)

    def _restore(self, text: str, name: str, collectives: list[str]) -> None:
        self._items, self._taken, self._frozen = [], set(), None
        self._collectives, self._places, self._limits = collectives, {}, []
        self._parsed = (text, name)
        self._handle = None
        self.name, self.world = "", 1
        head = re.search(r"^graph\s+(\S+?)\s*(?:\((.*)\))?\s*\{", self.text(canonical=True), re.M)
        if head:
            world = re.search(r"\bworld = (\d+)", head.group(2) or "")
            self.name, self.world = head.group(1), int(world.group(1)) if world else 1

    def __reduce__(self) -> tuple[Any, ...]:
        if self._parsed is not None:
            return _parse_again, (*self._parsed, self._collectives)
        programs = (self._collectives, self._places, self._message_limits())
        return _build_again, (self.name, self.world, self._written(), self._where, programs)

    def __repr__(self) -> str:
        return f"<maco.Graph '{self.name}' of {self.world} rank{'' if self.world == 1 else 's'}>"

    # ---- compiling

    def compile(
        self,
        *,
        target: str | None = None,
        board: str | None = None,
        sms: int | None = None,
        fuse: bool = True,
        no_fuse: Sequence[str] = (),
        load_ahead: bool = True,
        prune: bool = True,
        packets: bool = True,
        include_folders: Sequence[str | os.PathLike[str]] = (),
        defines: Sequence[str] | Mapping[str, object] = (),
        max_warnings: int | None = 20,
    ) -> Kernel:
        """Compiles and proves the graph; the options are those of `macoc`.

        `target` is what code may use ("sm_90a", "cpu"); if it isn't given, "cpu" where MACO_DEVICE is cpu and there is no
        `board`, else "sm_90a". `board` is a machine of it, `sms` how many SMs a rank may use. `no_fuse` are the rules of fusion that are
        left out ("norm", "send"), `fuse=False` leaves out all. `include_folders` and `defines`
        (NAME, NAME=VALUE, or a mapping) are for sources of ops `cuda`. `max_warnings` are how many of a kind `Kernel.warnings` has, None
        for all. Raises `maco.GraphError` if the graph is wrong or can't be compiled.
        May be called from several threads at once. Ctrl-C ends the wait.
        """
        from .kernel import Kernel

        if target is None and board is None and _native.environment_device() == "cpu":
            target = "cpu"
        folders = _native.strings([os.fspath(folder) for folder in include_folders], "a folder")
        if isinstance(defines, str):
            raise TypeError("defines takes a list of NAME=VALUE, not one string")
        if isinstance(no_fuse, str):
            raise TypeError("no_fuse takes a list of rules, not one string")
        rules = _native.strings(list(no_fuse), "a rule of fusion")
        pairs = [f"{key}={value}" for key, value in defines.items()] if isinstance(defines, Mapping) else list(defines)
        macros = _native.strings(pairs, "a macro")
        options = _native.CompileOptions(
            size=ctypes.sizeof(_native.CompileOptions),
            target=None if target is None else _native.encoded(target, "the target"),
            board=None if board is None else _native.encoded(board, "the board"),
            sms=int(sms or 0),
            no_load_ahead=not load_ahead,
            no_fuse=not fuse,
            no_prune=not prune,
            no_packets=not packets,
            include_folders=folders,
            defines=macros,
            include_folder_count=len(folders),
            define_count=len(macros),
            max_warnings=-1 if max_warnings is None else operator.index(max_warnings) or -1,
            no_fuse_rules=rules,
            no_fuse_rule_count=len(rules),
        )
        handle = self._checked()
        pointer = handle.begin()

        def work() -> int:
            made: int = _native.call("maco_compile", pointer, ctypes.byref(options))
            return made

        def dispose(late: int) -> None:
            _native.library().maco_kernel_free(late)

        try:
            compiled = _native.interruptible(work, dispose=dispose, last=handle.done)
        except GraphError as error:
            raise self._placed(error) from None
        kernel = Kernel._made(compiled)
        kernel._warnings = self._moved(kernel._warnings)
        if self._limits:
            from .mscclpp._sizes import check_sizes

            again = {"target": target, "board": board, "sms": sms, "include_folders": include_folders, "defines": pairs}
            lines = [line for line, _ in self._written()]
            check_sizes(lines, self._text_name(), self._message_limits(), self._collectives, again)
        return kernel

    # ---- inside

    def _open(self) -> _Where:
        """Where the caller stands, if the graph can grow."""
        if self._parsed is not None or self._frozen is not None:
            raise Error(f"the graph '{self.name}' was {'unpickled' if self._frozen else 'parsed'}, and can't be built further")
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        return _caller()

    def _wrong(self, message: str, where: _Where | None = None) -> GraphError:
        place = where or _caller()
        one = Diagnostic("error", place.file, place.line, 0, message)
        return GraphError(_shown([one]), diagnostics=[one])

    def _check_name(self, name: str, what: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of {what} is a string, not {type(name).__name__}")
        if not _NAME.match(name):
            rule = "a name is a letter or _, then letters, digits and _; parts are joined by dots"
            raise self._wrong(f"{what} can't be called '{name}': {rule}")

    def _take(self, name: str, what: str) -> None:
        self._check_name(name, what)
        self._taken.add(name)

    def _declare(self, name: str, line: str) -> None:
        where = self._open()
        self._take(name, "a dim or scalar")
        self._items.append((where, line))

    def _tensor(self, kind: str, name: str, dtype: DTypeLike, shape: Sequence[ExprLike]) -> Value:
        where = self._open()
        self._take(name, f"the {kind}")
        if isinstance(shape, (str, int, Expr)):
            raise TypeError(f"the shape of '{name}' is a list of extents, not {shape!r}")
        known = as_dtype(dtype)
        self._items.append((where, f"{kind} {name} : {known}{_extents(shape)}"))
        return Value(self, None, 0, name, kind, known)

    def _own(self, value: object, kind: str, position: int) -> None:
        if not isinstance(value, Value):
            raise TypeError(f"{kind}(): operand {position + 1} is a {type(value).__name__}, not a tensor of a graph")
        if value._graph is not self:
            raise self._wrong(f"operand {position + 1} of '{kind}' is '{value.name}' of another graph, '{value._graph.name}'")

    def _references(self, ops: Iterable[Value | str]) -> list[_Op | str]:
        if isinstance(ops, (str, Value)):
            ops = [ops]
        found: list[_Op | str] = []
        for one in ops:
            if isinstance(one, Value):
                self._own(one, "after", len(found))
                if one._op is None:
                    raise self._wrong(f"'{one.name}' is a tensor of the caller's: no op makes it, for which others could wait")
                one._op.referred = True
                found.append(one._op)
            elif isinstance(one, str):
                found.append(one)
            else:
                raise TypeError(f"an op is named by its value or its name, not by a {type(one).__name__}")
        return found

    def _ops(self, kind: str, operands: Sequence[Any], results: int, attributes: Mapping[str, Any], common: Any) -> tuple[Value, ...]:
        where = self._open()
        for key in common:
            if key not in COMMON:
                own = [one for one in attributes if one != "if"]
                near = difflib.get_close_matches(key, [*COMMON, *own], n=1)
                raise TypeError(f"{kind}() has no keyword '{key}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        for i, operand in enumerate(operands):
            self._own(operand, kind, i)
        if isinstance(results, bool) or not isinstance(results, int) or results < 0:
            raise TypeError(f"{kind}() takes a number of results, not {results!r}")
        told = {key: value for key, value in common.items() if value is not None}
        into, name = told.pop("into", None), told.pop("name", "")
        if name:
            self._take(name, f"'{kind}'")
        if into is not None:
            self._own(into, f"{kind}(into)", 0)
            if into.kind != "state":
                raise self._wrong(f"'into' of '{kind}' is '{into.name}', which is no state")
        if "after" in told:
            told["after"] = self._references(told["after"])
        dtype = as_dtype(told["dtype"]) if "dtype" in told else None
        if dtype is not None:
            told["dtype"] = dtype
        program = attributes.get("algorithm") if kind != "cuda" else None
        if isinstance(program, str):
            program = self._programs.get(program)
        if program is not None:
            attributes = {**attributes, "algorithm": self._add_program(program, kind, attributes)}
        defaults = getattr(Ops, kind).__kwdefaults__ or {}
        chosen = {k: v for k, v in attributes.items() if v is not None and not _same(v, defaults.get(k))}
        op = _Op(kind, list(operands), where, chosen, told)
        op.into = [into if i == 0 else None for i in range(results)]
        op.names = ["" if i == 0 and into is not None else (name if i == 0 or not name else f"{name}.{i}") for i in range(results)]
        op.outputs, op.output_wheres = [""] * results, [where] * results
        if results == 0 or into is not None:
            op.own = name
        self._taken.update(filter(None, op.names))
        for value in op.attributes.values():
            _written_value(value, self)  # a type that can't be written is told here
        self._items.append((where, op))
        if program is not None and program._has_limits:
            self._limits.append((op, program))
        return tuple(
            Value(self, op, i, state._declared, "state", state.dtype) if state is not None else Value(self, op, i, dtype=dtype)
            for i, state in enumerate(op.into)
        )

    def _add_program(self, program: Any, kind: str = "", attributes: Mapping[str, Any] | None = None) -> str:
        """The name of a program's collective, whose text is added."""
        if not hasattr(program, "_used"):
            what = f"algorithm of {kind}()" if kind else "a collective"
            raise TypeError(f"{what} is a text or a maco.mscclpp.CollectiveProgram, not {type(program).__name__}")
        made = program._used(self, kind, attributes)
        if made.text not in self._collectives:
            if any(re.search(rf"\bcollective\s+{made.name}\b", text) for text in self._collectives):
                raise self._wrong(f"another collective of the graph '{self.name}' is called '{made.name}'; give the program another name")
            self._collectives.append(made.text)
            self._places[len(self._collectives)] = made.places
        self._programs[made.name] = program
        return str(made.name)

    def _message_limits(self) -> list[Limit]:
        """How large the messages of programs may be, with the operands' names."""
        from .mscclpp._sizes import Limit

        names = self._final_names() if self._limits else {}
        return [
            one
            if isinstance(one, Limit)
            else Limit(
                self._operand_name(one[0].operands[0], names),
                one[0].where,
                one[1].name,
                one[1].min_message_size,
                one[1].max_message_size,
            )
            for one in self._limits
        ]

    def cuda(
        self,
        *operands: Value,
        source: str,
        kernel: str,
        grid: Sequence[ExprLike],
        block: Sequence[ExprLike],
        args: Sequence[Any],
        types: Mapping[str, Any] | None = None,
        template: Sequence[Any] | None = None,
        options: str | None = None,
        shared: ExprLike | None = None,
        reads: Mapping[Any, Any] | None = None,
        writes: Mapping[Any, Any] | None = None,
        **common: Any,
    ) -> Value | tuple[Value, ...]:
        results = dict(types or {})
        states = [value if isinstance(value, Value) else None for value in results.values()]
        attributes = {
            "source": _source(source),
            "kernel": kernel,
            "template": None if template is None else list(template),
            "options": options,
            "grid": list(grid),
            "block": list(block),
            "shared": shared,
            "args": list(args),
            "reads": reads,
            "writes": writes,
        }
        into = common.pop("into", None)
        name = common.pop("name", None)
        if name is not None:
            self._check_name(name, "the op")
        if into is not None:
            states, results = [into, *states], {into._declared if isinstance(into, Value) else "into": into, **results}
        made = self._ops("cuda", operands, len(results), attributes, common)
        op = made[0]._op if made else None
        values = []
        for i, (key, kind) in enumerate(results.items()):
            assert op is not None
            state = states[i]
            if state is not None:
                self._own(state, "cuda", i)
                op.into[i] = state
                values.append(Value(self, op, i, state._declared, "state", state.dtype))
                continue
            self._take(key, "a result of 'cuda'")
            if isinstance(kind, Mapping):
                kind = (kind["dtype"], kind["shape"])
            dtype, shape = kind
            op.types[key] = (as_dtype(dtype), list(shape))
            op.names[i] = key
            values.append(Value(self, op, i, dtype=op.types[key][0]))
        if op is not None and name:
            op.own = name
        return values[0] if len(values) == 1 else tuple(values)

    cuda.__doc__ = Ops.cuda.__doc__

    # ---- names and text of what was built

    def _final_names(self) -> dict[tuple[int, int], str]:
        """What results are called, by op's id and index."""
        names: dict[tuple[int, int], str] = {}
        taken = set(self._taken)
        numbers: dict[str, int] = {}

        def fresh(kind: str) -> str:
            while True:
                number = numbers.get(kind, 0)
                numbers[kind] = number + 1
                if f"{kind}.{number}" not in taken:
                    taken.add(f"{kind}.{number}")
                    return f"{kind}.{number}"

        for _, item in self._items:
            if not isinstance(item, _Op):
                continue
            whole = item.kind == "cuda" or all(item.outputs)
            for i, state in enumerate(item.into):
                if state is not None:
                    names[id(item), i] = state._declared
                elif whole and item.outputs[i]:
                    names[id(item), i] = item.outputs[i]
                else:
                    names[id(item), i] = item.names[i] or fresh(item.kind)
        for _, item in self._items:
            if isinstance(item, _Op):
                first = names.get((id(item), 0), "")
                own = item.own
                if not own and item.into and item.into[0] is None:
                    own = item.names[0]
                if not own and item.referred and (not item.into or item.into[0] is not None):
                    own = fresh(item.kind)
                names[id(item), -1] = own or first
        return names

    def _name_of(self, value: Value) -> str:
        if value._op is None or value.kind == "state":
            return value._declared
        return self._final_names()[id(value._op), value._index]

    def _written(self) -> list[tuple[str, _Where | None]]:
        """The lines of the text, and where each comes from."""
        if self._frozen is not None:
            return self._frozen
        names = self._final_names()
        lines: list[tuple[str, _Where | None]] = []
        lines.append((f"graph {self.name}(world = {self.world}) {{", self._where))
        for where, item in self._items:
            if isinstance(item, str):
                lines.append((f"  {item}", where))
            elif isinstance(item, _Op):
                lines.append((f"  {self._statement(item, names)}", where))
                if item.kind != "cuda" and any(item.outputs) and not all(item.outputs):
                    lines += [
                        (f"  output {output} = copy({names[id(item), i]})", item.output_wheres[i])
                        for i, output in enumerate(item.outputs)
                        if output
                    ]
            else:
                lines.append((f"  {item.line(names)}", where))
        lines.append(("}", self._where))
        return lines

    def _statement(self, op: _Op, names: dict[tuple[int, int], str]) -> str:
        def written(value: Any) -> str:
            return _written_value(value, self, names)

        results = []
        for i in range(len(op.into)):
            one = names[id(op), i]
            if op.kind == "cuda" and op.outputs[i]:
                dtype, shape = op.types[one]
                one += f" : {dtype}{_extents(shape)}"
            results.append(one)
        arguments = [self._operand_name(value, names) for value in op.operands]
        attributes = dict(op.attributes)
        if op.types:
            types = {key: {"dtype": t[0], "shape": t[1]} for key, t in op.types.items() if key not in op.outputs}
            if types:
                attributes["types"] = types
        arguments += [f"{key} = {written(value)}" for key, value in attributes.items()]
        for key, value in op.common.items():
            if key == "after":
                value = [one if isinstance(one, str) else names[id(one), -1] for one in value]
            arguments.append(f"{key} = {written(value)}")
        text = f"{op.kind}({', '.join(arguments)})"
        outputs = [bool(output) for output in op.outputs]
        if op.kind == "cuda" and any(outputs) and not all(outputs):
            # Some are declared, which stands on lines of its own.
            raise self._wrong("of the results of 'cuda' either all or none can be outputs: copy those that are", op.where)
        if results:
            text = ("output " if all(outputs) else "") + ", ".join(results) + " = " + text
        own = names[id(op), -1]
        if own and (not results or own != names[id(op), 0]):
            text += f" @{own}"
        return text

    def _operand_name(self, value: Value, names: dict[tuple[int, int], str]) -> str:
        if value._op is None or value.kind == "state":
            return value._declared
        return names[id(value._op), value._index]

    # ---- the library's graph

    def _checked(self) -> _native.Handle:
        """The library's graph; raises `maco.GraphError` if it is wrong."""
        handle = self._handle
        if handle is not None:
            return handle
        if self._parsed is not None:
            text, name = self._parsed
        else:
            text, name = self.text(), self._text_name()
        collectives = _native.strings(self._collectives, "a text of collectives")
        try:
            pointer = _native.call(
                "maco_graph_parse_with",
                _native.encoded(text, "the text"),
                _native.encoded(name, "the name"),
                collectives,
                len(collectives),
            )
        except GraphError as error:
            raise self._placed(error) from None
        handle = _native.Handle(self, pointer, "maco_graph_free")
        self._handle = handle
        return handle

    def _use(self) -> Any:
        return self._checked().use()

    def _text_name(self) -> str:
        return f"<{self.name}>"

    def _placed(self, error: GraphError) -> GraphError:
        """The same with lines of the caller's Python, if the graph was built there."""
        if self._parsed is not None:
            return error
        found = self._moved(error.diagnostics)
        if not found:
            found = (Diagnostic("error", self._where.file, self._where.line, 0, error.message),)
        return GraphError(_shown(found), diagnostics=found)

    def _moved(self, diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
        """With lines of the caller's Python, if the graph was built there."""
        if self._parsed is not None:
            return tuple(diagnostics)
        text_name = self._text_name()
        lines = self._written()

        def moved(one: Diagnostic, note: bool = False) -> Diagnostic:
            found = self._of_program(one)
            if found is not None:
                where, text = found
                told = () if note else (Diagnostic("note", one.file, one.line, one.column, f"in the collective's text: {text}"),)
                return Diagnostic(one.severity, where.file, where.line, 0, one.text, (*told, *(moved(n, True) for n in one.notes)))
            at = lines[one.line - 1] if one.file in (text_name, "") and 0 < one.line <= len(lines) else None
            if at is None or at[1] is None:
                notes = tuple(moved(n, True) for n in one.notes)
                if one.file in (text_name, ""):
                    return Diagnostic(one.severity, self._where.file, self._where.line, 0, one.text, notes)
                return Diagnostic(one.severity, one.file, one.line, one.column, one.text, notes)
            notes = () if note else (Diagnostic("note", text_name, one.line, one.column, f"in the graph's text: {at[0].strip()}"),)
            return Diagnostic(one.severity, at[1].file, at[1].line, 0, one.text, notes + tuple(moved(n, True) for n in one.notes))

        return tuple(moved(one) for one in diagnostics)

    def _of_program(self, one: Diagnostic) -> tuple[_Where, str] | None:
        """Where the program says what a diagnostic is about, and the line of its collective's text."""
        match = _PROGRAM.match(one.file)
        number = int(match.group(1)) if match else 0
        if number not in self._places:
            return None
        from .mscclpp._places import place

        where = place(one.line, one.text, self._places[number])
        return None if where is None else (where, self._collectives[number - 1].splitlines()[one.line - 1].strip())


def compile_graph(graph: Graph | str | os.PathLike[str], **options: Any) -> Kernel:
    """Compiles a graph, or the file of one, with the options of `Graph.compile`."""
    return (graph if isinstance(graph, Graph) else Graph.read(graph)).compile(**options)


def _parse_again(text: str, name: str, collectives: list[str]) -> Graph:
    return Graph.parse(text, name, collectives)


def _build_again(name: str, world: int, lines: list[tuple[str, _Where | None]], where: _Where, programs: tuple[Any, ...]) -> Graph:
    graph = Graph.__new__(Graph)
    graph._where = where
    graph.name, graph.world = name, world
    graph._items, graph._taken = [], set()
    graph._collectives, graph._places, graph._limits = programs
    graph._parsed, graph._handle = None, None
    graph._frozen = lines
    return graph


class _Setting:
    def __init__(self, key: str, value: Any) -> None:
        self.key, self.value = key, value
        _written_value(value)

    def line(self, names: dict[tuple[int, int], str]) -> str:
        return f"set {self.key} = {_written_value(self.value, None, names)}"


class _Region:
    def __init__(self, name: str, ops: list[_Op | str]) -> None:
        self.name, self.ops = name, ops

    def line(self, names: dict[tuple[int, int], str]) -> str:
        return f"region {self.name} = {_op_names(self.ops, names)}"


class _Pipeline:
    def __init__(self, stages: list[list[_Op | str]], microbatches: ExprLike) -> None:
        self.stages, self.microbatches = stages, expression(microbatches)

    def line(self, names: dict[tuple[int, int], str]) -> str:
        return f"pipeline [{', '.join(_op_names(stage, names) for stage in self.stages)}] microbatches {self.microbatches}"


def _op_names(ops: list[_Op | str], names: dict[tuple[int, int], str]) -> str:
    return "[" + ", ".join(_quoted(one) if isinstance(one, str) else names[id(one), -1] for one in ops) + "]"


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not isinstance(value, Expr) and bool(value == default)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _typical(typical: int | None) -> str:
    return "" if typical is None else f" typical {int(typical)}"


def _extents(shape: Sequence[ExprLike]) -> str:
    return "[" + ", ".join(_one_line(expression(extent)) for extent in shape) + "]"


def _one_line(text: str) -> str:
    if not re.fullmatch(r"[\w.\s+\-*/%()<>=!&|]*", text) or "\n" in text:
        raise Error(f"{text!r} is no expression")
    return text


def _written_value(value: Any, graph: Graph | None = None, names: dict[tuple[int, int], str] | None = None) -> str:
    """A value of the language. Raises TypeError for what is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Expr):
        return _quoted(value.text)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Value):
        if names is None:
            return ""
        return _quoted(value._graph._operand_name(value, names))
    if isinstance(value, Mapping):
        entries = [f"{_written_value(_key(key), graph, names)}: {_written_value(one, graph, names)}" for key, one in value.items()]
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, (list, tuple, range)):
        return "[" + ", ".join(_written_value(one, graph, names) for one in value) + "]"
    if hasattr(value, "__index__") and tuple(getattr(value, "shape", ())) == ():
        return str(value.__index__())
    if isinstance(value, float) or type(value).__module__ == "numpy":
        try:
            number = float(value)
        except TypeError:
            raise TypeError(f"a value of a graph can't be a {type(value).__name__}: {value!r}") from None
        if not math.isfinite(number):
            raise Error(f"a number of a graph can't be {number}")
        return repr(number)
    try:
        return as_dtype(value).name
    except TypeError:
        raise TypeError(f"a value of a graph can't be a {type(value).__name__}: {value!r}") from None


def _key(key: Any) -> Any:
    if not isinstance(key, (str, Value)):
        raise TypeError(f"a key is a string or a tensor, not {type(key).__name__}")
    return key


def _source(source: str) -> str:
    if os.path.isabs(source):
        return source
    beside = os.path.join(os.path.dirname(os.path.abspath(_caller().file)), source)
    if os.path.exists(source):
        return os.path.abspath(source)
    return beside if os.path.exists(beside) else source


def _shown(diagnostics: Sequence[Diagnostic]) -> str:
    """Diagnostics as text, each with the line of Python."""
    lines = []
    for one in diagnostics:
        lines += _shown_one(one)
        for note in one.notes:
            lines += _shown_one(note)
    return "\n".join(lines)


def _shown_one(one: Diagnostic) -> list[str]:
    place = one.file + (f":{one.line}" if one.line else "") + (f":{one.column}" if one.column else "")
    lines = [f"{place}: {one.severity}: {one.text}"]
    source = linecache.getline(one.file, one.line).strip() if one.line and not one.file.startswith("<") else ""
    if source:
        lines.append(f"    {source}")
    return lines
