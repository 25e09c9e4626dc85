"""A model's sessions, and the launches of an answer.

A prompt goes in by launches of up to a chunk of ids, then each launch appends one. The ids that launches give lie in a ring of slots, in
memory that the host and all ranks see: launch i finds its id in slot i - 1, where launch i - 1 put it, and puts the next into slot i. So
launches wait for no host; it reads the ids behind them, and what was launched beyond the end of an answer is thrown away: a later prompt
overwrites its rows of the caches. A slot that waits for an id holds -1. All launches are on one stream of each GPU, one behind the other.

Where the host chooses the ids, from logits, it writes them into the slots itself, one launch at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _native
from ..dtypes import DType
from ..errors import Error, ErrorCode
from ..groups import Group
from ..kernel import Kernel, Session
from .importing import Model, Progress
from .kernels import cached_kernel, gpu_options
from .memory import ALIGNMENT, DeviceIntegers, HostIntegers, Streams

__all__ = ["Engine"]

AHEAD = 4
"""So many launches are under way on GPUs beyond the one whose id was read last."""
SLOTS = 8
"""At least three more, so that no launch's id is overwritten; at most as many as sessions keep tables of tensors for."""
_ALL = SLOTS + 1  # and one for ids that nobody reads
_INTS = ALIGNMENT // 4
_PAUSE = 0.00005
_LOOK = 0.01
_STOP_SECONDS = 3.0


class _Launches:
    """Launches of one session, on streams, that differ in numbers and in where two tensors are: ids in, ids out."""

    def __init__(self, session: Session, streams: Streams | None, *numbers: str) -> None:
        self.session = session
        self._streams = streams.handles if streams else None
        names = [info.name for info in session.kernel.tensors]
        self._tensors = names.index("tokens"), names.index("next")
        self._values = (_native.Value * len(numbers))()
        for value, name in zip(self._values, numbers, strict=True):
            value.name = name.encode()

    def places(self, tokens: Sequence[int], following: Sequence[int]) -> Any:
        """For launches with the tensors at these addresses, one a rank of this process."""
        made = (_native.Place * 2)()
        for place, tensor, at in zip(made, self._tensors, (tokens, following), strict=True):
            place.tensor = tensor
            place.at = (ctypes.c_void_p * len(at))(*at)
        return made

    def __call__(self, places: Any, *numbers: int) -> None:
        for value, number in zip(self._values, numbers, strict=True):
            value.value = number
        self.session._launch_given(self._values, len(numbers), places, 2, self._streams)


class Engine:
    """A model on a device: sessions that share weights and caches, for one answer at a time.

    `group`: the processes whose ranks these are; None: all ranks are in this one. `gpu`: the number of the GPU of the only rank here. The
    calls of all processes are the same, in one order: `begin`, `greedy`, `chosen` or `logits`, and `settle`, or `give_up` behind an error.
    """

    def __init__(
        self,
        model: Model,
        *,
        device: str,
        group: Group | None = None,
        gpu: int | None = None,
        timeout: float = 30.0,
        progress: Progress | None = None,
    ) -> None:
        self.model = model
        self.device = device
        self.max_seq = int(model.about["max_seq"])
        self.vocabulary = int(model.about["vocabulary"])
        self.chunk = int(model.about["chunk"])
        self._world = int(model.about["world"])
        self._group = group
        self._gpu = gpu
        self._timeout = timeout
        self._tell = progress or (lambda what, done, total: None)
        self._options = {"target": "cpu"} if device == "cpu" else gpu_options(gpu or 0)
        self._sessions: dict[str, Session] = {}
        self._logits_of = ""  # the kind of the launch that logits are of
        self._launched = 0  # of the answer: how many ids there are, or will be
        self.under_way = False
        """Something may have been launched that nobody has waited for."""
        self.told = False
        """All ranks know why the answer fails."""
        self._waited: set[str] = set()  # sessions that were waited for since `begin`
        self.rows = 0  # of the caches: of the prompt, when it was read
        self._ahead = 0 if device == "cpu" else AHEAD  # on the CPU a launch ends before the next one begins
        self._verify: _Launches | None = None
        self._verify_next: HostIntegers | None = None
        # Memory first, so that at the end of the process it goes last. Each rank has its own slots; a prompt's chunks have places of their
        # own, as launches are put on streams ahead.
        self._here = 1 if group else self._world
        self._pitch = -(-self.chunk // _INTS) * _INTS
        self._gpus = [] if device == "cpu" else [gpu or 0] if self._here == 1 else list(range(self._here))
        self._streams = Streams(self._gpus) if self._gpus else None
        self._ring = HostIntegers(self._here * _ALL * _INTS, self._gpus[0] if self._gpus else None)
        self._prompt = DeviceIntegers((-(-self.max_seq // self.chunk) + 1) * self._pitch, self._streams)
        try:
            decode = self._open("decode")
            decode.allocate()
            decode.load(model.weights, model.folder, lambda done, total: self._tell("reading weights", done, total))
            prefill = self._open("prefill")
            self._decode, self._prefill = _Launches(decode, self._streams, "pos"), _Launches(prefill, self._streams, "rows", "pos")
            self._steps = [self._decode.places(self._at((i - 1) % SLOTS), self._at(i)) for i in range(SLOTS)]
            self._chunks: dict[tuple[int, bool], Any] = {}
        except BaseException:
            self.close()
            raise
        finally:
            self._tell("", 0, 0)

    # ---- sessions

    def _open(self, kind: str) -> Session:
        kernel = self._kernel(kind)
        group = self._group
        one = group is not None or (self.device != "cpu" and self._world == 1)
        self._tell(f"opening the {kind} kernel", 0, 0)
        session = Session(
            kernel,
            self.device,  # type: ignore[arg-type]
            timeout=self._timeout,
            process_a_rank=one,
            rank=group.rank if group else 0 if one else None,
            group=group.name if group else None,
            gpu=self._gpu if one and self.device == "cuda" else None,
            progress=lambda what: self._tell(f"{kind}: {what}" if what else "", 0, 0),
        )
        if "decode" in self._sessions:
            session.share(self._sessions["decode"])
            session.allocate()
        self._sessions[kind] = session
        return session

    def _kernel(self, kind: str) -> Kernel:
        """Compiled by rank 0, and found on disk by the others."""
        self._tell(f"compiling the {kind} graph", 0, 0)

        def make() -> Kernel:
            return cached_kernel(self.model.graphs[kind], f"{kind}.maco", **self._options)

        group = self._group
        if group is None:
            return make()
        group.compare(f"{self.model.graphs[kind]}\n{self.model.weights}", f"the model's graph '{kind}'", doing="open a model")
        kernel, failed = None, None
        if group.rank == 0:
            try:
                kernel = make()
            except Error as error:
                failed = error
        told = group.exchange("" if failed is None else str(failed), max(group.timeout, 300.0))[0]
        if failed is not None:
            raise failed
        if told:
            raise Error(told)
        return kernel or make()

    def _at(self, slot: int) -> list[int]:
        """The slot's addresses, one a rank."""
        return [self._ring.address + (rank * _ALL + slot) * ALIGNMENT for rank in range(self._here)]

    # ---- launches

    def read(self, ids: Sequence[int]) -> None:
        """Launches what reads a prompt of at least one id, from row 0 on; the id behind it comes into slot 0."""
        count, pos = len(ids), 0
        self._prompt_ids(ids)
        self.rows, self._launched = count, 1
        self._clear(0)
        while count - pos > 1 and pos <= self.max_seq - self.chunk:
            number, rows = pos // self.chunk, min(self.chunk, count - pos)
            last = pos + rows == count
            if (number, last) not in self._chunks:
                at = self._prompt_at(number * self._pitch)
                self._chunks[number, last] = self._prefill.places(at, self._at(0 if last else SLOTS))
            self._launch("prefill", self._prefill, self._chunks[number, last], rows, pos)
            pos += rows
        if pos < count:
            # What doesn't fit a chunk at the end of the caches.
            for i, token in enumerate(ids[pos:]):
                last = pos + i == count - 1
                self._put(-1, token)
                self._clear(0)
                self._launch("decode", self._decode, self._steps[0], pos + i)
                if not last:
                    self._found(0)

    def _launch(self, kind: str, launches: _Launches, places: Any, *numbers: int) -> None:
        if self._group is not None and self.device == "cpu":
            self.meet(f"launches {kind} at row {numbers[-1]}")  # where a launch waits for all ranks nobody can be told of Ctrl-C
        self._logits_of = kind
        launches(places, *numbers)

    def _prompt_ids(self, ids: Sequence[int]) -> None:
        if self._pitch == self.chunk:
            self._prompt.put(0, ids)
            return
        for number, begin in enumerate(range(0, len(ids), self.chunk)):
            self._prompt.put(number * self._pitch, ids[begin : begin + self.chunk])

    def _prompt_at(self, number: int) -> list[int]:
        """The addresses of an id of the prompt, one a rank."""
        found = [address + 4 * number for address in self._prompt.addresses]
        return found if self._gpus else found * self._here

    def step(self) -> None:
        """Launches what gives the next id from the one before, which may be on its way."""
        i = self._launched
        self._clear(i)
        self._launch("decode", self._decode, self._steps[i % SLOTS], self.rows + i - 1)
        self._launched = i + 1

    def greedy(self, ids: Sequence[int], count: int) -> Iterator[int]:
        """Up to `count` ids behind a prompt, each the most likely one. Leaves launches under way when it is closed: `settle`."""
        self.read(ids)
        for i in range(count):
            while self._launched < min(count, i + 1 + self._ahead):
                self.step()
            yield self._found(i)

    def chosen(self, ids: Sequence[int], count: int, choose: Callable[[Any], int]) -> Iterator[int]:
        """As `greedy`, with ids that `choose` takes from logits, f32[vocabulary]."""
        self.read(ids)
        for i in range(count):
            self._found(i)
            token = choose(self._row())
            yield token
            if i + 1 < count:
                self._put(i, token)
                self.step()

    def logits(self, ids: Sequence[int]) -> Any:
        """The logits of every position of a prompt: f32[len(ids), vocabulary], NumPy's."""
        numpy = need_numpy()
        made = numpy.empty((len(ids), self.vocabulary), numpy.float32)
        pos = 0
        if "verify" in self.model.graphs:
            if self._verify is None:
                self._verify = _Launches(self._open("verify"), self._streams, "pos")
                self._tell("", 0, 0)
                self._rows = self._verify.session._find("tokens").shape[0]
                pitch = -(-self._rows // _INTS) * _INTS
                self._verify_next = HostIntegers(self._here * pitch, self._gpus[0] if self._gpus else None)
                at = [self._verify_next.address + rank * pitch * 4 for rank in range(self._here)]
                self._verify_places = self._verify.places(self._prompt_at(0), at)
            while pos < len(ids) and pos <= self.max_seq - self._rows:
                part = list(ids[pos : pos + self._rows])
                # What is behind the prompt is any id: its rows of the caches count for nothing.
                self._prompt.put(0, part + [0] * (self._rows - len(part)))
                self._launch("verify", self._verify, self._verify_places, pos)
                self._wait("verify")
                made[pos : pos + len(part)] = self._read_logits(self._rows)[: len(part)]
                pos += len(part)
        while pos < len(ids):
            self._put(-1, ids[pos])
            self._clear(0)
            self._launch("decode", self._decode, self._steps[0], pos)
            self._wait("decode")
            made[pos] = self._read_logits(1)[0]
            pos += 1
        return made

    def _row(self) -> Any:
        return self._read_logits(1)[0]

    def _read_logits(self, rows: int) -> Any:
        """A copy of the logits of the last launch, f32[rows, vocabulary]."""
        numpy = need_numpy()
        session = self._sessions[self._logits_of]
        info = session._find("logits")
        made = numpy.empty((rows, self.vocabulary), {DType.f32: numpy.float32, DType.f16: numpy.float16}.get(info.dtype, numpy.uint16))
        at = session.ranks[0]
        session._call("maco_session_read", at, b"logits", made.ctypes.data, made.nbytes, waits=self.device == "cuda")
        if info.dtype is DType.bf16:
            return (made.astype(numpy.uint32) << 16).view(numpy.float32)
        return made.astype(numpy.float32, copy=False)

    # ---- slots

    def _clear(self, slot: int) -> None:
        for rank in range(self._here):
            self._ring.at[(rank * _ALL + slot % SLOTS) * _INTS] = -1

    def _put(self, slot: int, token: int) -> None:
        for rank in range(self._here):
            self._ring.at[(rank * _ALL + slot % SLOTS) * _INTS] = token

    def _found(self, slot: int) -> int:
        """The id in a slot, when all ranks have put it there."""
        token = self._seen(slot % SLOTS)
        for rank in range(1, self._here):
            other = self._seen(rank * _ALL + slot % SLOTS)
            if other != token:
                raise Error(f"rank 0 has found id {token}, and rank {rank} {other}: a fault of MACO's", code=ErrorCode.INTERNAL)
        return token

    def _seen(self, place: int) -> int:
        ids, at = self._ring.at, place * _INTS
        looked = 0.0
        while True:
            token: int = ids[at]
            if token >= 0:
                return token
            now = time.monotonic()
            if now - looked > _LOOK or self.device == "cpu":
                if looked or self.device == "cpu":
                    self._look(at)
                looked = now
            time.sleep(_PAUSE)

    def _look(self, at: int) -> None:
        """Raises why there will be no id, if the launches have ended without one."""
        if self._group is not None and self._group.failure():
            self.meet("is told of a failure")
        ended = [self._sessions[kind].ended() for kind in ("prefill", "decode")]
        if all(ended) and self._ring.at[at] < 0:
            # In a group the launches' failures are heard together, when this is settled.
            raise Error("a launch has ended, and there is no id: a fault of MACO's", code=ErrorCode.INTERNAL)

    # ---- ends

    def _wait(self, kind: str) -> None:
        """Until this process's launches of a kind have ended."""
        session = self._sessions[kind]
        if self._group is None:
            session.wait()
            return
        while not session.ended():
            time.sleep(_PAUSE)

    def meet(self, what: str) -> int:
        """As the group's; an error is one that all ranks are told of."""
        assert self._group is not None
        try:
            return self._group.meet(what)
        except Error:
            self.told = True
            raise

    def settle(self) -> None:
        """Waits for what is under way; a group's processes do it together. Raises why it failed. An answer calls it or `give_up` once."""
        for kind, session in self._sessions.items():
            if kind not in self._waited:
                self._waited.add(kind)  # also if Ctrl-C comes meanwhile: the others have waited, too
                session.wait()
        self.under_way = False

    def give_up(self) -> Error | None:
        """As `settle`, after an error or Ctrl-C: soon ends launches that wait for other ranks in vain. Gives why a launch failed."""
        why = None
        for kind, session in self._sessions.items():
            if kind in self._waited:
                continue
            self._waited.add(kind)
            timer = threading.Timer(_STOP_SECONDS, _stop, [session])
            timer.daemon = True
            timer.start()
            try:
                session.wait()
            except Error as error:
                why = why or error
            finally:
                timer.cancel()
        self.under_way = False
        return why

    def begin(self) -> None:
        """Begins an answer. What was under way has been waited for."""
        self.under_way, self.told = True, False
        self._waited.clear()

    def close(self) -> None:
        """Frees sessions and memory. May be called twice."""
        for kind in ("verify", "prefill", "decode"):
            if kind in self._sessions:
                self._sessions.pop(kind).close()
        for name in ("_ring", "_prompt", "_verify_next", "_streams"):
            memory = getattr(self, name, None)
            if memory is not None:
                memory.close()
        self._verify = self._verify_next = None


def _stop(session: Session) -> None:
    with contextlib.suppress(Error):
        session._stop()


def need_numpy() -> Any:
    """NumPy. Raises `maco.Unavailable` where it isn't installed."""
    try:
        import numpy
    except ImportError:
        from ..errors import Unavailable

        raise Unavailable("logits and sampling need NumPy, which isn't installed: pip install 'maco[models]'") from None
    return numpy
