"""Where the ranks of a group, processes of one host, see how far the others are before they run something together.

Each has a slot in memory that all map: how often it has come to a meeting, and what for. So who runs something else is told from
who is late, and a rank whose process has ended is missed at once; waiting is done in Python, where Ctrl-C ends it.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import tempfile
import threading
import time
import zlib

from .errors import Error, MismatchError

__all__ = ["Board", "Liveness", "here"]

_HEAD = struct.Struct("<qqII")  # meetings, generation, bytes of text, checksum
_ENTRY = 512
_SLOT = 2 * _ENTRY  # of the last meeting and the one before, which another rank may not have read yet
_FAILED = "\0"
_LEFT = 2**62  # in place of a count: comes to no meeting any more

cancelled = threading.Event()
"""While it is set, meetings in other threads than the main one end with an error."""


def here() -> str:
    """What processes have in common that see each other's memory and process ids."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


class _Cancelled(Error):
    pass


class Liveness:
    """Whether processes are still there."""

    def __init__(self, pids: list[int]) -> None:
        self._files: dict[int, int] = {}
        self._poll = select.poll()
        self._pids = pids
        for rank, pid in enumerate(pids):
            if pid != os.getpid() and hasattr(os, "pidfd_open"):
                try:
                    file = os.pidfd_open(pid)
                except OSError:
                    continue
                self._files[file] = rank
                self._poll.register(file, select.POLLIN)

    def ended(self) -> set[int]:
        """The ranks whose processes have ended."""
        return {self._files[file] for file, _ in self._poll.poll(0) if file in self._files}

    def close(self) -> None:
        """Lets go of the processes."""
        for file in self._files:
            self._poll.unregister(file)
            os.close(file)
        self._files.clear()

    def __del__(self) -> None:
        for file in self._files:
            os.close(file)


class Board:
    """The slots of a group's ranks in a file's memory."""

    def __init__(self, path: str, rank: int, size: int, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        file = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(file, size * _SLOT)
            self._memory = mmap.mmap(file, size * _SLOT)
        finally:
            os.close(file)
        self.rank = rank
        self.size = size
        self.count = 0
        self.generation = 0
        self.liveness: Liveness | None = None

    @staticmethod
    def place(name: str) -> str:
        """A path for a group's board, in memory where the host has that."""
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        return os.path.join(folder, f"maco-board-{name}")

    def _publish(self, text: str) -> None:
        raw = text.encode(errors="replace")[: _ENTRY - _HEAD.size]
        begin = self.rank * _SLOT + self.count % 2 * _ENTRY
        self._memory[begin + _HEAD.size : begin + _HEAD.size + len(raw)] = raw
        _HEAD.pack_into(self._memory, begin, self.count, self.generation, len(raw), _check(raw, self.count, self.generation))

    def _count_of(self, rank: int) -> int:
        """How often a rank has come."""
        begin = rank * _SLOT
        counts: list[int] = [_HEAD.unpack_from(self._memory, begin + entry)[0] for entry in (0, _ENTRY)]
        return max(counts)

    def _read(self, rank: int, which: int) -> tuple[int, str] | None:
        """A rank's generation and what it came for to meeting `which`; None, if it is just being written."""
        begin = rank * _SLOT + which % 2 * _ENTRY
        count, generation, length, check = _HEAD.unpack_from(self._memory, begin)
        if count != which or length > _ENTRY:
            return None
        raw = self._memory[begin + _HEAD.size : begin + _HEAD.size + length]
        return (generation, raw.decode(errors="replace")) if check == _check(raw, count, generation) else None

    def meet(self, text: str, timeout: float) -> int:
        """Waits until all ranks have come for the same, and gives the highest of their generations, which becomes this one's.

        Raises `maco.MismatchError` if one has come for something else, and `maco.Error` if one hasn't come in time, has ended, or failed.
        """
        self.count += 1
        self._publish(text)
        try:
            self._wait(text, timeout)
        except (KeyboardInterrupt, _Cancelled):
            # As if it hadn't come, unless all others have seen it.
            if any(self._count_of(rank) < self.count for rank in range(self.size)):
                self._withdraw()
            raise
        return self.generation

    def _wait(self, text: str, timeout: float) -> None:
        missing = [rank for rank in range(self.size) if rank != self.rank]
        begin, turns, pause, looked = time.monotonic(), 0, 0.00002, 0.0
        while missing:
            late = []
            for rank in missing:
                if self._count_of(rank) < self.count:
                    late.append(rank)
                    continue
                found = self._read(rank, self.count)
                if found is None:
                    late.append(rank)
                    continue
                generation, other = found
                self.generation = max(self.generation, generation)
                if other != text:
                    if other.startswith(_FAILED):
                        raise Error(f"rank {rank} failed: {other[1:]}")
                    first, second = sorted(((self.rank, text), (rank, other)))
                    raise MismatchError(
                        f"the ranks do different things: rank {first[0]} {_shown(first[1])}, rank {second[0]} {_shown(second[1])}"
                    )
            missing = late
            if not missing:
                return
            turns += 1
            if turns < 50:
                continue
            if cancelled.is_set() and threading.current_thread() is not threading.main_thread():
                raise _Cancelled("Ctrl-C has ended the wait for other ranks")
            now = time.monotonic()
            if now - looked > 0.2:
                looked = now
                ended = self.liveness.ended() if self.liveness else set()
                for rank in missing:
                    # It may have come before it ended.
                    count = self._count_of(rank)
                    left = count == _LEFT and self._read(rank, self.count) is None
                    if left or (rank in ended and count < self.count):
                        raise Error(f"the process of rank {rank} has ended, and rank {self.rank} {_shown(text)} with it")
                if now - begin > timeout:
                    found = self._read(missing[0], self._count_of(missing[0]))
                    last = f"; what it did last: {_shown(found[1])}" if found else ""
                    raise Error(
                        f"rank {missing[0]} hasn't come within {timeout:g} seconds to where rank {self.rank} is, which {_shown(text)}{last}"
                    )
            time.sleep(pause)
            pause = min(pause * 1.3, 0.001)

    def _withdraw(self) -> None:
        _HEAD.pack_into(self._memory, self.rank * _SLOT + self.count % 2 * _ENTRY, 0, 0, 0, 0)
        self.count -= 1

    def fail(self, why: str) -> None:
        """Comes to the next meeting without waiting, to say that this rank failed."""
        self.count += 1
        self._publish(_FAILED + why)

    def leave(self) -> None:
        """Comes to no meeting any more, while the process is still there."""
        _HEAD.pack_into(self._memory, self.rank * _SLOT + (self.count + 1) % 2 * _ENTRY, _LEFT, 0, 0, 0)

    def close(self) -> None:
        """Lets go of the memory."""
        if self.liveness:
            self.liveness.close()
        self._memory.close()


def _check(raw: bytes, count: int, generation: int) -> int:
    return zlib.crc32(raw, (count * 31 + generation) & 0xFFFFFFFF)


def _shown(text: str) -> str:
    if text.startswith(_FAILED):
        return f"failed ({text[1:]})"
    return text
