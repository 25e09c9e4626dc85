"""The ranks that run graphs together: which one this process is, of how many, and how they agree before they do.

A process runs one rank. `default()` is the group of all of them: that of torch.distributed where it is initialised, else the one that the
environment names (torchrun's variables, Slurm's and MPI's), else this process alone. `find(name)` and `of(...)` give others.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Union

from . import config
from .errors import Error, MismatchError, Unavailable
from .meeting import Board, Liveness, here, launched_in_vain
from .words import chosen

__all__ = ["Group", "GroupLike", "backend", "default", "finalize", "find", "get_rank", "get_world_size", "init", "is_initialized", "of"]

TIMEOUT = 300.0
"""Seconds in which all ranks must have come to a comparison."""


class Group:
    """Ranks that call MACO's functions in one order.

    `rank` is this process's among `size`. `name` is the same on all ranks of the group, and another for every other group on this host.
    `ranks` are the numbers of its members among all processes. `store` is torch's, for `exchange`; None only where `size` is 1 or torch is
    missing. Calls are collective and not thread safe.
    """

    def __init__(
        self, rank: int, size: int, name: str, store: Any = None, torch_group: Any = None, ranks: Sequence[int] | None = None
    ) -> None:
        self.rank = rank
        self.size = size
        self.name = name
        self.store = store
        self._torch_group = None if torch_group is None else weakref.ref(torch_group)
        self.ranks = tuple(range(size)) if ranks is None else tuple(ranks)
        self.timeout = TIMEOUT
        self.launch_timeout = 30.0
        """Seconds that a launch waits for another rank."""
        self._count = 0
        self._board: Board | None = None
        self.launching: weakref.WeakSet[Any] = weakref.WeakSet()
        """Programs that the ranks launch without meeting, on GPUs."""
        self._refused: list[Any] = []
        self._pid = os.getpid()

    @property
    def torch_group(self) -> Any:
        """The ProcessGroup that it stands for; None of others, and of one that was destroyed."""
        return None if self._torch_group is None else self._torch_group()

    @property
    def generation(self) -> int:
        """How often sessions of the group had to be opened anew; `meet` makes it the same on all ranks."""
        return self._board.generation if self._board else 0

    def meet(self, what: str) -> int:
        """Waits until all ranks have come here to do the same, `what` (a verb first), and gives the group's generation.

        Raises `maco.MismatchError` if a rank has come to do something else, and `maco.Error` if one hasn't come within `timeout` seconds,
        has ended, or failed. What Ctrl-C has ended may be called again. Does nothing where the ranks don't share memory.
        """
        self.check_usable()
        if not self._board:
            return 0
        if self._refused:
            self._conclude()
        try:
            return self._board.meet(what, self.timeout)
        except MismatchError as error:
            self._recall(error)
            raise

    def begin(self, what: str, mark: int) -> None:
        """Says what this rank launches, as `meet` does, but waits for nobody; `mark`, of 32 bits, stands for it.

        Raises `maco.MismatchError` if another rank has launched something else, or waits in a meeting instead.
        """
        self.check_usable()
        if self._board:
            if self._refused:
                self._conclude()
            try:
                self._board.begin(what, mark, self.timeout)
            except MismatchError as error:
                self._recall(error)
                raise

    def _recall(self, error: MismatchError) -> None:
        """Ends a launch that waits in vain for ranks that do something else."""
        text, here = launched_in_vain(error)
        for one in list(self.launching) if text else ():
            if one.launches(text):
                one.conclude() if here else one.refuse()
                if not here:
                    self._refused.append(one)
                return

    def _conclude(self) -> None:
        """Finds out, together with the other ranks, how the launches ended that this rank refused."""
        refused, self._refused = self._refused, []
        for one in refused:
            one.conclude()

    def fail(self, why: str) -> None:
        """Tells the other ranks at their next meeting that this one failed. What it had open with them has to be opened anew by all."""
        if self._board and self._pid == os.getpid():
            self._board.generation += 1
            self._board.fail(why)

    def skip(self, why: str) -> None:
        """Tells the other ranks at their next meeting that this one won't do what they meet for. Nothing of it was begun."""
        if self._board and self._pid == os.getpid():
            self._board.fail(why)

    def failure(self) -> str:
        """Which other rank failed since the last meeting, and why; "" if none has said so. The next meeting raises it."""
        return self._board.failure() if self._board else ""

    def renew(self) -> None:
        """Has all ranks open sessions anew from the next meeting on."""
        if self._board and self._pid == os.getpid():
            self._board.generation += 1

    def exchange(self, text: str, timeout: float | None = None, what: str = "compares what the ranks have") -> list[str]:
        """What each rank gave, by rank. `what` says what for, as of `meet`.

        Raises `maco.Error` that names the first rank that hasn't come within `timeout` seconds (the group's), or has ended.
        """
        if self.size == 1:
            return [text]
        self.check_usable()
        if self.store is None:
            raise Error("ranks can compare what they do only with torch installed")
        limit = self.timeout if timeout is None else timeout
        if self._board:
            if self._refused:
                self._conclude()
            try:
                self._board.meet(what, limit)
            except MismatchError as error:
                self._recall(error)
                raise
        base = f"maco/{self.name}/{self._count + 1}"
        store = self.store
        try:
            store.set(f"{base}/{self.rank}", text.encode())
            _wait_for(store, [f"{base}/{rank}" for rank in range(self.size)], self.rank, limit)
            found = [store.get(f"{base}/{rank}").decode() for rank in range(self.size)]
            self._count += 1
            # Every rank has read all of the exchange before this one.
            store.delete_key(f"maco/{self.name}/{self._count - 1}/{self.rank}")
        except RuntimeError as error:
            raise Error(f"the ranks can't compare what they do: {str(error).splitlines()[0]}") from error
        return found

    def compare(self, text: str, what: str, timeout: float | None = None, doing: str = "compares what the ranks have") -> None:
        """Raises `maco.MismatchError` on all ranks, with the first line that differs, unless all give the same text.

        `what` it is, and what the ranks are `doing`, as of `meet`.
        """
        if self.size == 1:
            return
        digests = self.exchange(hashlib.sha256(text.encode()).hexdigest(), timeout, doing)
        if len(set(digests)) == 1:
            return
        texts = self.exchange(text, timeout)
        # The store may end with the first rank that leaves.
        with contextlib.suppress(Error):
            self.exchange("", 10)
        mine = texts[0].splitlines()
        for rank, other in enumerate(texts):
            if other == texts[0]:
                continue
            theirs = other.splitlines()
            line = next((i for i in range(max(len(mine), len(theirs))) if mine[i : i + 1] != theirs[i : i + 1]), 0)
            raise MismatchError(
                f"{what} differs between ranks: line {line + 1} is '{_line(mine, line)}' on rank 0 "
                f"and '{_line(theirs, line)}' on rank {rank}"
            )

    def check_usable(self) -> None:
        """Raises `maco.Error` in a forked child, which shares its parent's connections."""
        if self.size > 1 and self._pid != os.getpid():
            raise Error("a forked child can't take part in its parent's group; start processes by 'spawn'")

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.Group: each process finds its own by maco.groups.default() or of()")

    def __repr__(self) -> str:
        return f"<maco.Group rank {self.rank} of {self.size}>"


GroupLike = Union[Group, Any, None]
"""A Group, a ProcessGroup of torch.distributed, a list of ranks, or None: all."""


def _line(lines: Sequence[str], index: int) -> str:
    return lines[index].strip() if index < len(lines) else ""


# ---- which rank, of how many


def _environment() -> tuple[int, int]:
    """This process's rank and how many there are. Raises `maco.Error` for variables that don't fit each other."""
    for rank_name, *size_names in (
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    ):
        size_name = next((name for name in size_names if name in os.environ), size_names[0])
        if rank_name.startswith("SLURM") and (rank_name not in os.environ or size_name not in os.environ):
            continue
        if rank_name not in os.environ and size_name not in os.environ:
            continue
        numbers = []
        for name, other in ((rank_name, size_name), (size_name, rank_name)):
            text = os.environ.get(name)
            if text is None:
                raise Error(f"{other} is set, but not {name}: a process that is a rank needs both")
            if not text.strip().isdigit():
                raise Error(f"{name} is '{text}', which is no number of a rank or of ranks")
            numbers.append(int(text))
        rank, size = numbers
        if rank >= size:
            raise Error(f"{rank_name} is {rank}, but {size_name} is {size}: ranks count from 0")
        return rank, size
    return 0, 1


def _first_host(nodes: str) -> str:
    """The first of Slurm's list of hosts: "n[03-05,9],m" is n03."""
    found = re.match(r"([^\[,]+)(?:\[([^\],-]+))?", nodes)
    return (found.group(1) + (found.group(2) or "")) if found else ""


def _meeting_place() -> tuple[str, int]:
    """Host and port of rank 0's store."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if port is not None and not port.isdigit():
        raise Error(f"MASTER_PORT is '{port}', which is no number of a port")
    if host is None and (nodes := os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")):
        host = _first_host(nodes)
    if port is None:
        names = ("PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_MCA_ess_base_jobid")
        job = "/".join(os.environ.get(name, "") for name in names)
        # Ports of one job are the same on all ranks, and those of two jobs seldom.
        number = 29500 if not job.strip("/") else 10000 + int(hashlib.sha256(job.encode()).hexdigest(), 16) % 20000
        return host or "127.0.0.1", number
    return host or "127.0.0.1", int(port)


# ---- backends


def _check_available(name: str) -> None:
    """Raises `maco.Unavailable` if this machine can't have it."""
    if name in ("auto", "gloo") or os.environ.get("MACO_DEVICE") == "cpu":
        return
    if not _has_gpu():
        raise Unavailable(
            f"backend '{name}' needs NVIDIA GPUs, and this process sees none; use backend 'auto' or 'gloo', or set MACO_DEVICE=cpu "
            f"to run everything on the CPU target, where shared memory and sockets stand in for it"
        )
    library, variable, package = {
        "nccl": ("libnccl.so.2", "MACO_NCCL", "nvidia-nccl-cu13"),
        "nccl_optimized": ("libnccl.so.2", "MACO_NCCL", "nvidia-nccl-cu13"),
        "nvshmem": ("libnvshmem_host.so.3", "MACO_NVSHMEM", "nvidia-nvshmem-cu13"),
    }.get(name, ("", "", ""))
    if library and not _has_library(library, variable):
        raise Unavailable(
            f"backend '{name}' needs {library}, which wasn't found; install it (pip install {package}), "
            f"or set {variable} to its file or folder"
        )


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return os.path.exists("/dev/nvidiactl")
    return bool(torch.cuda.is_available())


def _has_library(name: str, variable: str) -> bool:
    import ctypes
    import glob

    given = os.environ.get(variable)
    if given is not None:
        return os.path.isfile(given) or os.path.isfile(os.path.join(given, name))
    with contextlib.suppress(OSError):
        ctypes.CDLL(name)
        return True
    folders = [*sys.path, "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"]
    return any(glob.glob(os.path.join(one, part)) for one in folders if one for part in (name, f"nvidia/*/lib/{name}"))


def backend() -> str:
    """The backend that `init` was given, or `config.set`, else "auto"."""
    if _state.backend is not None:
        return _state.backend
    return str(config.get("backend"))


def graph_backend() -> str | None:
    """What a graph of several ranks on GPUs sets as its `backend`; None: nothing."""
    _check_available(backend())
    return {"nccl": "nccl", "nccl_optimized": "nccl", "nvshmem": "nvshmem"}.get(backend())


# ---- the groups of this process


class _State:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.arguments: dict[str, Any] | None = None  # those of init()
        self.backend: str | None = None
        self.own: Group | None = None  # over a store of MACO's own, or of this process alone
        self.store: Any = None  # kept until the process ends
        self.store_at: tuple[str, int, int, int] | None = None
        self.liveness: dict[int, Liveness] = {}  # of a store's ranks, by its id
        self.made: dict[str, Group] = {}
        self.of_torch: weakref.WeakKeyDictionary[Any, Group] = weakref.WeakKeyDictionary()
        self.of_ranks: dict[tuple[str, tuple[int, ...]], Group] = {}
        self.closing: list[Callable[[], None]] = []
        self.settling: list[Callable[[], None]] = []


_state = _State()


def init(backend: str | None = None, *, rank: int | None = None, world_size: int | None = None, timeout: float | None = None) -> None:
    """Makes this process a rank. Everything else calls it by itself, on first use.

    `backend`: how ranks on GPUs communicate: "auto" (the default, or what `config.set` says), "p2p" (peer memory, inside the kernel),
    "nccl" (its other name is "nccl_optimized") or "nvshmem"; "gloo": everything on the CPU target, tensors on GPUs by way of the host.
    Tensors on the CPU always run there. `rank` and `world_size` are those of torch.distributed where it is initialised, else those that
    torchrun, MPI or Slurm put in the environment; given, they have precedence over the environment. `timeout`: how many seconds ranks wait
    for each other: 300 before a launch and 30 within one, if it isn't given.

    Raises `maco.Unavailable` where this machine lacks the backend, and `maco.Error` if it was called before with other arguments (the same
    again do nothing), or if not all ranks come.
    """
    if (rank is None) != (world_size is None):
        raise TypeError("init() takes both of rank and world_size, or neither")
    asked = str(config.get("backend")) if backend is None else chosen(backend, config.BACKENDS, "the backend")
    if rank is not None and world_size is not None and not 0 <= rank < world_size:
        raise Error(f"rank {rank} is none of {world_size} ranks, which count from 0")
    if timeout is not None and not timeout > 0:
        raise Error(f"the time-out is a number of seconds above 0, not {timeout}")
    arguments = {"backend": asked, "rank": rank, "world_size": world_size, "timeout": timeout}
    with _state.lock:
        before = _state.arguments
        if before is not None:
            for key, value in arguments.items():
                if value != before[key] and not (key == "backend" and _meaning(asked) == _meaning(before[key])):
                    raise Error(
                        f"maco.init() was called before with {key}={before[key]!r}, and now with {key}={value!r}; "
                        f"call maco.finalize() first to begin anew"
                    )
            return
        if _state.own is not None and rank is not None and (rank, world_size) != (_state.own.rank, _state.own.size):
            raise Error(
                f"this process already is rank {_state.own.rank} of {_state.own.size}, since something was run before maco.init(); "
                f"call maco.init() first, or maco.finalize() to begin anew"
            )
        theirs = _torch_default()
        if theirs is not None and rank is not None and (rank, world_size) != (theirs.rank(), theirs.size()):
            raise Error(
                f"init() was given rank {rank} of {world_size}, but torch.distributed has made this process rank {theirs.rank()} "
                f"of {theirs.size()}"
            )
        _check_available(asked)
        _state.arguments, _state.backend = arguments, asked
        for one in config.changed:
            one()
        try:
            default()
            for group in _state.made.values():
                _limit(group)
        except BaseException:
            _state.arguments = _state.backend = None
            raise


def check_switch(name: str) -> None:
    """Raises `maco.Error` if `init` was called with another backend."""
    if _state.backend is not None and _meaning(name) != _meaning(_state.backend):
        raise Error(f"maco.init() was called with backend='{_state.backend}', which can't become '{name}'; call maco.finalize() first")


def begun() -> bool:
    """Whether `init` has chosen a backend."""
    return _state.backend is not None


def _meaning(name: str) -> str:
    return "nccl" if name == "nccl_optimized" else name


def is_initialized() -> bool:
    """Whether `init` was called, or something that calls it."""
    return _state.arguments is not None or _state.own is not None or bool(_state.of_torch)


def get_rank() -> int:
    """Which of the ranks this process is. Waits for no other."""
    return _who()[0]


def get_world_size() -> int:
    """How many ranks there are. Waits for no other."""
    return _who()[1]


def _who() -> tuple[int, int]:
    """This process's rank among all, and how many there are."""
    theirs, own = _torch_default(), _state.own
    if theirs is not None and (own is None or (theirs.size(), theirs.rank()) != (own.size, own.rank)):
        return theirs.rank(), theirs.size()
    if own is not None:
        return own.rank, own.size
    given = _state.arguments
    return _environment() if given is None or given["rank"] is None else (given["rank"], given["world_size"])


def size_of(name: str) -> int:
    """How many ranks the group of this name has. Waits for no rank."""
    return find(name).size if name else get_world_size()


# Dynamo takes what they give for constants, as it may.
get_rank._dynamo_marked_constant = get_world_size._dynamo_marked_constant = True  # type: ignore[attr-defined]


def default() -> Group:
    """The group of all processes, made at the first call."""
    with _state.lock:
        theirs = _torch_default()
        own = _state.own
        if theirs is not None and own is None:
            return of(theirs)
        if own is None:
            if _state.arguments is None:
                _check_available(str(config.get("backend")))
            own = _state.own = _make()
            _state.made[own.name] = own
        if theirs is not None and (theirs.size(), theirs.rank()) != (own.size, own.rank):
            return of(theirs)
        return own


def _torch_default() -> Any:
    """torch.distributed's default group; None where it isn't initialised."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.distributed_c10d._get_default_group()


def _make() -> Group:
    given = _state.arguments or {}
    rank, size = _who()
    if size == 1:
        return Group(0, 1, f"alone-{secrets.token_hex(8)}")
    try:
        from torch.distributed import TCPStore
    except ImportError:
        raise Unavailable(
            f"this is rank {rank} of {size}, and ranks meet by torch.distributed; install PyTorch (pip install torch)"
        ) from None

    host, port = _meeting_place()
    place = (host, port, rank, size)
    limit = float(given.get("timeout") or TIMEOUT)
    try:
        if _state.store is None or _state.store_at != place:
            agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            wait = timedelta(seconds=limit)
            master = rank == 0 and not agent
            meeting = _patiently(lambda: TCPStore(host, port, size, master, timeout=wait, multi_tenant=True, wait_for_workers=False))
            key = "world"
            if agent:
                # It outlives ranks that torchrun starts again.
                key = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
            store = _own_store(meeting, key, rank, size, host, limit)
            # The port is for whoever comes next: all let go of it, rank 0 first.
            others = [f"maco/there/{other}" for other in range(1, size)]
            if rank:
                del meeting
                store.set(others[rank - 1], b"")
                _wait_for(store, ["maco/go"], rank, limit)
            else:
                _wait_for(store, others, 0, limit, first=1)
                del meeting
                store.set("maco/go", b"")
            _state.store, _state.store_at = store, place
        group = Group(rank, size, _agree(_state.store, "world", rank), _state.store)
    except RuntimeError as error:
        raise Error(
            f"rank {rank} of {size} found no store of rank 0's at {host}:{port} within {limit:g} seconds "
            f"(MASTER_ADDR and MASTER_PORT say where): {str(error).splitlines()[0]}"
        ) from error
    _limit(group)
    _equip(group)
    return group


def _own_store(meeting: Any, key: str, rank: int, size: int, host: str, limit: float) -> Any:
    """A store of these ranks' own, which lives as long as rank 0's process, made by way of another."""
    from torch.distributed import TCPStore

    turn = meeting.add(f"maco/{key}/turn/{rank}", 1)
    at = f"maco/{key}/address/{turn}"
    wait = timedelta(seconds=limit)
    if rank == 0:
        store = TCPStore(host, 0, size, True, timeout=wait, wait_for_workers=False)
        meeting.set(at, str(store.port))
    else:
        _wait_for(meeting, [at], rank, limit)
        number = int(meeting.get(at))
        store = _patiently(lambda: TCPStore(host, number, size, False, timeout=wait, wait_for_workers=False))
    atexit.register(_leave, store, rank, size, os.getpid())
    return store


def _patiently(make: Callable[[], Any]) -> Any:
    """Calls `make` in another thread, so that Ctrl-C ends the wait for it, and gives its result."""
    if threading.current_thread() is not threading.main_thread():
        return make()
    found: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(make())
        except BaseException as error:  # noqa: BLE001 - for the one who waits
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if failed:
        raise failed[0]
    return found.pop()


def _wait_for(store: Any, keys: Sequence[str], rank: int, limit: float, first: int = 0) -> None:
    """Waits until all keys are there, of ranks from `first` on. Raises `maco.Error` that names the first that isn't."""
    end, pause = time.monotonic() + limit, 0.0005
    for other, key in enumerate(keys, first):
        while not store.check([key]):
            if time.monotonic() > end:
                raise Error(f"rank {other} hasn't come within {limit:g} seconds, the timeout here, to where rank {rank} is")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)


def _equip(group: Group) -> None:
    """Gives a group a board, if all its ranks see each other's memory. Raises `maco.Error` if not all of them come."""
    places = [place.split() for place in group.exchange(f"{here()} {os.getpid()}")]
    path, board = Board.place(group.name), None
    try:
        if group.rank == 0 and len({place[0] for place in places}) == 1 and len(places[0]) == 2:
            with contextlib.suppress(OSError):
                board = Board(path, 0, group.size, create=True)
        if group.exchange("yes" if board else "no")[0] == "no":
            return
        if group.rank:
            with contextlib.suppress(OSError, ValueError):
                board = Board(path, group.rank, group.size, create=False)
        together = all(word == "yes" for word in group.exchange("yes" if board else "no"))
    finally:
        if group.rank == 0:
            with contextlib.suppress(OSError):
                os.unlink(path)
    if together and board:
        board.liveness = Liveness([int(place[1]) for place in places])
        group._board = board
        _state.liveness.setdefault(id(group.store), board.liveness)


def _limit(group: Group, theirs: float | None = None) -> None:
    """Gives a group the time-out of `init`, else that of the process group which it stands for."""
    if limit := (_state.arguments or {}).get("timeout"):
        group.timeout = group.launch_timeout = float(limit)
    elif theirs:
        group.timeout = theirs
        if _has_gpu():  # there ranks wait for each other within a launch, too; on the CPU only where one is stuck
            group.launch_timeout = max(theirs, group.launch_timeout)


def _agree(store: Any, key: str, rank: int, limit: float = TIMEOUT) -> str:
    """A name that is the same on all ranks that call this in one order over the store, and another each time."""
    turn = store.add(f"maco/{key}/turn/{rank}", 1)
    at = f"maco/{key}/name/{turn}"
    mine = secrets.token_hex(8)
    if store.add(f"{at}/first", 1) == 1:
        store.set(at, mine)
    _wait_for(store, [at], rank, limit)
    return str(store.get(at).decode())


def _leave(store: Any, rank: int, size: int, pid: int) -> None:
    """Called at exit. Rank 0, whose process has the store, waits until the others have left or ended, for a minute at most."""
    if pid != os.getpid():
        return
    for group in list(_state.made.values()):
        if group._board:
            group._board.leave()
    liveness = _state.liveness.get(id(store))
    with contextlib.suppress(RuntimeError):
        if rank:
            store.set(f"maco/left/{rank}", b"")
        elif liveness is not None and not hasattr(sys, "last_value"):
            end = time.monotonic() + 60
            for other in range(1, size):
                while not store.check([f"maco/left/{other}"]) and other not in liveness.ended() and time.monotonic() < end:
                    time.sleep(0.01)


def finalize() -> None:
    """Closes what collectives hold and leaves the ranks; what comes after begins anew. All ranks call it, or none."""
    with _state.lock:
        for close in _state.closing:
            close()
        for group in _state.made.values():
            group._board = None
        _state.own = _state.arguments = _state.backend = None
        _state.made.clear()
        _state.of_torch.clear()
        _state.of_ranks.clear()


def on_finalize(close: Callable[[], None]) -> None:
    """Has `finalize` call this."""
    _state.closing.append(close)


# ---- sub-groups


def find(name: str) -> Group:
    """The group of this name: "" is the default group, others are names of Groups or of torch.distributed's groups.

    Raises `maco.Error` where there is none, or this process isn't in it.
    """
    if not name:
        return default()
    found = _state.made.get(name)
    if found is not None:
        return found
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        theirs = None
        with contextlib.suppress(Exception):
            theirs = dist.distributed_c10d._resolve_process_group(name)
        if theirs is not None:
            return of(theirs)
    raise Error(f"there is no group '{name}' in this process")


def of(group: GroupLike) -> Group:
    """The Group that is meant: of None all ranks, of a ProcessGroup its ranks, of a list of ranks these; a Group is itself.

    Raises `maco.Error` where this process isn't in it. The first call of all members makes it, so these are made in one order.
    """
    if group is None:
        return default()
    if isinstance(group, Group):
        return group
    with _state.lock:
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and isinstance(group, dist.ProcessGroup):
            return _of_torch(dist, group)
        if dist is not None and dist.is_available() and group is getattr(dist.GroupMember, "NON_GROUP_MEMBER", ()):
            raise Error("this process isn't a rank of the group")
        if isinstance(group, (list, tuple, range)):
            return _of_ranks(default(), tuple(int(rank) for rank in group))
    raise TypeError(f"a group is a maco.Group, a ProcessGroup, a list of ranks or None, not a {type(group).__name__}")


def _of_torch(dist: Any, group: Any) -> Group:
    kept = _state.of_torch.get(group)
    if kept is not None:
        return kept
    c10d = dist.distributed_c10d
    size, rank = group.size(), group.rank()
    if size == 1:
        made = Group(0, 1, f"alone-{secrets.token_hex(8)}", None, group, [dist.get_process_group_ranks(group)[0]])
    else:
        _, meeting = c10d._world.pg_map[c10d._get_default_group()]
        key = f"torch/{group.group_name}"
        theirs = getattr(group, "maco_timeout", None)  # of the backend "maco", which torch told how long ranks wait
        limit = float((_state.arguments or {}).get("timeout") or theirs or TIMEOUT)
        try:
            store = _own_store(meeting, key, rank, size, os.environ.get("MASTER_ADDR", "127.0.0.1"), limit)
            name = _agree(store, key, rank, limit)
        except RuntimeError as error:
            raise Error(f"the ranks of the process group don't meet: {str(error).splitlines()[0]}") from error
        ranks = dist.get_process_group_ranks(group)
        made = Group(rank, size, name, store, group, ranks)
        _limit(made, theirs)
        _equip(made)
    _state.of_torch[group] = made
    _state.made[made.name] = made
    return made


def _of_ranks(whole: Group, ranks: tuple[int, ...]) -> Group:
    """The group of these ranks of `whole`, in this order."""
    if len(set(ranks)) != len(ranks) or not ranks:
        raise Error(f"a group has each rank once, not {list(ranks)}")
    for rank in ranks:
        if not 0 <= rank < whole.size:
            raise Error(f"there is no rank {rank}: there are {whole.size}, from 0 to {whole.size - 1}")
    if whole.rank not in ranks:
        raise Error(f"this process is rank {whole.rank}, which isn't in the group {list(ranks)}")
    if ranks == tuple(range(whole.size)):
        return whole
    key = (whole.name, ranks)
    made = _state.of_ranks.get(key)
    if made is None:
        inner = f"{whole.name}-{'-'.join(map(str, ranks))}"
        made = Group(ranks.index(whole.rank), len(ranks), inner, whole.store, None, [whole.ranks[rank] for rank in ranks])
        made.timeout, made.launch_timeout = whole.timeout, whole.launch_timeout
        if made.size > 1:
            _equip(made)
        _state.of_ranks[key] = made
        _state.made[made.name] = made
    return made


def pair(group: Group, other: int) -> Group:
    """The group of this rank and another of `group`, the lower one first."""
    return _of_ranks(group, (min(group.rank, other), max(group.rank, other)))


# ---- order


def on_settle(wait: Callable[[], None]) -> None:
    """Has `settle` call this."""
    _state.settling.append(wait)


def settle() -> None:
    """Waits for what other threads have begun with other ranks, so that all ranks go on in one order."""
    for wait in _state.settling:
        wait()
