"""Where the ranks of a group, processes of one host, see how far the others are before they run something together.

Each has a slot in memory that all map: how often it has come to a meeting, and what for. So who runs something else is told from
who is late, and a rank whose process has ended is missed at once; waiting is done in Python, where Ctrl-C ends it.
"""

from __future__ import annotations

import mmap
import os
import re
import select
import struct
import tempfile
import threading
import time
import zlib

from .errors import Error, MismatchError

__all__ = ["ASIDE", "SECRET", "Board", "Liveness", "here", "launched_in_vain", "told_apart"]

_HEAD = struct.Struct("<qqII")  # meetings, generation, bytes of text, checksum
_ENTRY = 512
_SLOT = 2 * _ENTRY  # of the last meeting and the one before, which another rank may not have read yet
_NOTE = 256  # what a rank launched last: bytes of text, text
_RING = 64  # launches of a rank that others can still compare with theirs
_FAILED = "\0"
ASIDE = "\x1f"
"""Between what ranks have to do alike, and what is only told."""
SECRET = "\x1e"
"""Around what is compared, and told only where nothing else differs."""
_MISSED, _WAITS = "missed", "waits"
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


def told_apart(error: BaseException) -> bool:
    """Whether the ranks met to do different things. Then each rank has this error, and no rank has begun what it met for."""
    return getattr(error, "_met", None) is True


def launched_in_vain(error: BaseException) -> tuple[str, bool]:
    """The launch of a rank in which others take no part, "" if there is none, and whether that rank is this one."""
    found: tuple[str, bool] = getattr(error, "_launched", ("", False))
    return found


def _different(rank: int, text: str, other: int, theirs: str, launched: str = "", here: bool = False, met: bool = False) -> MismatchError:
    first, second = sorted(((rank, text), (other, theirs)))
    full = _shown(text) == _shown(theirs)
    error = MismatchError(
        f"the ranks do different things: rank {first[0]} {_shown(first[1], full)}, rank {second[0]} {_shown(second[1], full)}"
    )
    error._met, error._launched = met, (launched, here)  # type: ignore[attr-defined]
    return error


class Board:
    """The slots of a group's ranks in a file's memory.

    Ranks meet, or, where a launch needs no meeting (`begin`), count what they launch since the last one and leave a mark of it, so that
    one who waits for others, or is behind them, sees at once that they do something else.
    """

    def __init__(self, path: str, rank: int, size: int, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        words = 8 * (1 + size + size * _RING)
        bytes = size * (_SLOT + _NOTE) + words
        file = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(file, bytes)
            self._memory = mmap.mmap(file, bytes)
        finally:
            os.close(file)
        # The highest meeting that a rank has come to; how far each rank is, launches in the low half; marks of launches.
        whole = memoryview(self._memory)
        self._words = whole[size * _SLOT : size * _SLOT + words].cast("q")
        whole.release()
        self._notes = size * _SLOT + words
        self.rank = rank
        self.size = size
        self.count = 0
        self.launches = 0  # since the last meeting
        self._told = 0  # the last of them that was told to differ
        self.generation = 0
        self.liveness: Liveness | None = None
        self._noted = ""
        self._others = [(1 + other, 1 + size + other * _RING, other) for other in range(size) if other != rank]
        self._own = (1 + rank, 1 + size + rank * _RING)

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
        self._words[0] = max(self._words[0], self.count)

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
        text = text.encode(errors="replace")[: _ENTRY - _HEAD.size].decode(errors="replace")  # as the others see it
        self.count += 1
        self._publish(text)
        try:
            self._wait(text, timeout)
        except (KeyboardInterrupt, _Cancelled):
            # As if it hadn't come, unless all others have seen it.
            if any(self._count_of(rank) < self.count for rank in range(self.size)):
                self._withdraw()
                raise
            self._since_meeting()
            raise
        except BaseException:
            self._since_meeting()
            raise
        self._since_meeting()
        return self.generation

    def _since_meeting(self) -> None:
        self.launches = self._told = 0
        self._words[self._own[0]] = self.count << 32

    def begin(self, text: str, mark: int, timeout: float) -> None:
        """Says that this rank launches something for which ranks don't meet; `mark`, of 32 bits, is equal where ranks do the same.

        Waits for nobody. Raises `maco.MismatchError` if another rank has launched something else instead, or waits in a meeting.
        """
        words = self._words
        if words[0] > self.count and (why := self._waited_for()):
            if why == _MISSED:
                self._miss(text)
            self.meet(text, timeout)
            return
        if self.launches > self._told:
            self._look_back()
        if text is not self._noted:
            raw = text.encode(errors="replace")[: _NOTE - 4]
            at = self._notes + self.rank * _NOTE
            self._memory[at : at + 4 + len(raw)] = struct.pack("<I", len(raw)) + raw
            self._noted = text
        self.launches = number = self.launches + 1
        place = number % _RING
        head = (self.count & 0x7FFF) << 48 | (number & 0xFFFF) << 32
        words[self._own[1] + place] = own = head | mark
        words[self._own[0]] = self.count << 32 | number
        for _, ring, other in self._others:
            found = words[ring + place]
            if found != own and found >> 32 == head >> 32:
                self._told = number
                raise _different(self.rank, text, other, (note := self._note(other)), note)

    def _look_back(self) -> None:
        """Raises `maco.MismatchError` if another rank, which came later, was told that this one's last launch differs from its own."""
        words, place = self._words, self.launches % _RING
        own = words[self._own[1] + place]
        for _, ring, other in self._others:
            found = words[ring + place]
            if found != own and found >> 32 == own >> 32:
                self._told = self.launches
                raise _different(self.rank, self._noted, other, self._note(other), self._noted, here=True)

    def _note(self, rank: int) -> str:
        at = self._notes + rank * _NOTE
        (length,) = struct.unpack_from("<I", self._memory, at)
        return self._memory[at + 4 : at + 4 + min(length, _NOTE - 4)].decode(errors="replace")

    def _miss(self, text: str) -> None:
        """Comes late to a meeting that others have left, since this rank had launched something in its place."""
        self.count += 1
        self._publish(text)
        found = ((one, self._read(one, self.count)) for one in range(self.size) if one != self.rank)
        other, theirs = next((one, told[1]) for one, told in found if told is not None)
        self._since_meeting()
        raise _different(self.rank, self._noted, other, theirs, self._noted, here=True)

    def _waited_for(self) -> str:
        """`_WAITS` if a rank is in a meeting before which it launched less than this rank will, `_MISSED` if it has left it; else ""."""
        for _ in range(2):
            behind = ""
            for word, _, other in self._others:
                if self._count_of(other) in (self.count, _LEFT) or self._count_of(other) < self.count:
                    continue
                count, launches = divmod(self._words[word], 1 << 32)
                if count > self.count:
                    behind = _MISSED
                elif count == self.count and launches <= self.launches:
                    behind = behind or _WAITS
            if not behind:
                return ""
            time.sleep(0.001)  # its words may be on their way
        return behind

    def _wait(self, text: str, timeout: float) -> None:
        missing = [rank for rank in range(self.size) if rank != self.rank]
        begin, turns, pause, looked = time.monotonic(), 0, 0.00002, 0.0
        while missing:
            late = []
            for rank in missing:
                if self._count_of(rank) < self.count:
                    if self._launched_instead(rank) and self._count_of(rank) < self.count:
                        raise _different(self.rank, text, rank, (note := self._note(rank)), note)
                    late.append(rank)
                    continue
                found = self._read(rank, self.count)
                if found is None:
                    late.append(rank)
                    continue
                generation, other = found
                self.generation = max(self.generation, generation)
                if other.partition(ASIDE)[0] != text.partition(ASIDE)[0]:
                    if other.startswith(_FAILED):
                        raise Error(f"rank {rank} failed: {other[1:]}")
                    # With launches under way, a rank that hasn't come may launch instead, and isn't told.
                    here = not self._noted or all(self._count_of(one) >= self.count for one in range(self.size))
                    raise _different(self.rank, text, rank, other, met=here)
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
                        f"rank {missing[0]} hasn't come within {timeout:g} seconds, the timeout here, to where rank {self.rank} is, "
                        f"which {_shown(text)}{last}"
                    )
            time.sleep(pause)
            pause = min(pause * 1.3, 0.001)

    def _launched_instead(self, rank: int) -> bool:
        """Whether a rank that hasn't come has launched more since the meeting before than this one."""
        count, launches = divmod(self._words[1 + rank], 1 << 32)
        return count == self.count - 1 and launches > self.launches

    def _withdraw(self) -> None:
        _HEAD.pack_into(self._memory, self.rank * _SLOT + self.count % 2 * _ENTRY, 0, 0, 0, 0)
        self.count -= 1

    def fail(self, why: str) -> None:
        """Comes to the next meeting without waiting, to say that this rank failed."""
        self.count += 1
        self._publish(_FAILED + why)
        self._since_meeting()

    def failure(self) -> str:
        """Which rank won't come to the next meeting, and why; "" if none has said so."""
        for _, _, other in self._others:
            found = self._read(other, self.count + 1)
            if found is not None and found[1].startswith(_FAILED):
                return f"rank {other} failed: {found[1][1:]}"
        return ""

    def leave(self) -> None:
        """Comes to no meeting any more, while the process is still there."""
        _HEAD.pack_into(self._memory, self.rank * _SLOT + (self.count + 1) % 2 * _ENTRY, _LEFT, 0, 0, 0)

    def close(self) -> None:
        """Lets go of the memory."""
        if self.liveness:
            self.liveness.close()
        self._words.release()
        self._memory.close()


def _check(raw: bytes, count: int, generation: int) -> int:
    return zlib.crc32(raw, (count * 31 + generation) & 0xFFFFFFFF)


def _shown(text: str, full: bool = False) -> str:
    if text.startswith(_FAILED):
        return f"failed ({text[1:]})"
    return re.sub(f"{SECRET}([^{SECRET}]*){SECRET}", r" (\1)" if full else "", text.replace(ASIDE, ""))
