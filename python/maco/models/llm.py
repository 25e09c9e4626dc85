"""`LLM`: a checkpoint that answers prompts."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from .. import _native, groups
from ..dtypes import DTypeLike
from ..errors import Error, Unavailable
from ..kernel import prepare
from ..meeting import SECRET
from ..words import chosen, integer
from .checkpoint import settings
from .engine import Engine, need_numpy
from .importing import Progress, checkpoint_folder, element_type, import_model
from .progress import Bar
from .sampling import Sampler, Sampling
from .text import TextStream
from .words import Words

__all__ = ["LLM", "Answer", "Piece"]

_SEEDS = 2**63
_USUAL_ROWS = 4096


class Answer:
    """What came behind a prompt.

    `token_ids` are the new ids, with the one that ended the answer; `finish_reason` is "stop" (an id that ends answers, or a stop string)
    or "length" (`max_new_tokens`, or no room in the caches).
    """

    __slots__ = ("_text", "_visible", "_words", "finish_reason", "token_ids")

    def __init__(self, token_ids: list[int], finish_reason: str, text: str | None, words: Words, visible: int) -> None:
        self.token_ids = token_ids
        self.finish_reason = finish_reason
        self._text, self._words, self._visible = text, words, visible

    @property
    def text(self) -> str | None:
        """Its text: without special tokens, the id that ended it and a stop string. None where the checkpoint has no tokenizer.json, or
        the package `tokenizers` isn't installed."""
        if self._text is None and self._words.there:
            self._text = self._words.tokenizer.decode(self.token_ids[: self._visible])
        return self._text

    def __repr__(self) -> str:
        return f"<maco.models.Answer of {len(self.token_ids)} ids, finish_reason '{self.finish_reason}'>"


class Piece(str):
    """A part of an answer that is streamed: a str, the text that has become certain, "" without a tokenizer.

    `token_ids` are the ids that came since the piece before; `finish_reason` is None but for the last piece.
    """

    token_ids: list[int]
    finish_reason: str | None

    @classmethod
    def _made(cls, text: str, token_ids: list[int], finish_reason: str | None) -> Piece:
        piece = cls(text)
        piece.token_ids, piece.finish_reason = token_ids, finish_reason
        return piece

    @property
    def text(self) -> str:
        """The same text as a plain str."""
        return str.__str__(self)


@dataclass(frozen=True)
class _Request:
    """The arguments of `generate`, checked."""

    most: int
    how: Sampling
    seed: int | None
    stop: tuple[str, ...]


class LLM:
    """A checkpoint in Hugging Face's format, loaded, which answers prompts.

    `folder` holds config.json, .safetensors files and, for text, tokenizer.json. `tp`: over how many ranks it is spread: GPUs 0 to `tp` - 1
    of this process, or a GPU for each of as many processes (torchrun); with `tp` 1 several processes have a model each. `max_seq`: the
    most ids of a prompt and its answer together; 4096 means what the model is made for, if that is less. `dtype`: "f32", "f16" or "bf16";
    what config.json says if it isn't given. `device`: "cuda" or "cpu"; what MACO_DEVICE says if it isn't given, else "cuda".

    `chunk`: the most ids of a prompt in one launch. `architecture`: a file for one that MACO doesn't know (docs/models.md). `timeout`: how
    many seconds a launch may go on without progress. `progress`: whether a bar shows how far loading is; if it isn't said, on a terminal.

    Loading compiles what an earlier process hasn't left in the cache. Raises `maco.Error` for what can't be loaded, and
    `maco.Unavailable` where the machine lacks what it needs. One answer at a time: calls from several threads wait for each other. In
    several processes all make the same calls with the same arguments in one order. Close it, use it as a context, or let go of it to free
    its memory. It can't be pickled.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        tp: int = 1,
        max_seq: int = 4096,
        dtype: DTypeLike | None = None,
        device: Literal["cuda", "cpu"] | None = None,
        *,
        chunk: int | None = None,
        architecture: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        progress: bool | None = None,
    ) -> None:
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._owner = 0  # the thread that has gone on last with the answer under way
        self._streaming = False
        path = checkpoint_folder(folder)
        kind = element_type(dtype)
        integer(tp, "tp", 1)
        integer(max_seq, "max_seq", 2)
        self._words = Words(path)
        self._device = _device(device)
        self._group = _group(tp)
        self._timeout = timeout
        self._gpu = _gpu_index(1 if self._group else tp) if self._device == "cuda" else None
        show = sys.stderr is not None and sys.stderr.isatty() if progress is None else bool(progress)
        self._progress: Progress | None = Bar() if show and (self._group is None or self._group.rank == 0) else None
        rows = None if max_seq == _USUAL_ROWS else max_seq  # else what the model is made for, if that is less
        self._model = import_model(path, tp=tp, max_seq=rows, dtype=kind, chunk=chunk, architecture=architecture)
        self._settings = settings(path, self._model.about.get("eos", ()))
        if rows is not None and rows > (self._settings.positions or rows):
            warnings.warn(f"max_seq is {rows}, and the model is made for {self._settings.positions} positions", stacklevel=2)
        self._generation = self._group.generation if self._group else 0
        self._engine = self._opened()

    def _opened(self) -> Engine:
        return Engine(self._model, device=self._device, group=self._group, gpu=self._gpu, timeout=self._timeout, progress=self._progress)

    # ---- what it is

    @property
    def device(self) -> str:
        """Where it runs: "cuda" or "cpu"."""
        return self._device

    @property
    def dtype(self) -> str:
        """What it computes in: "f32", "f16" or "bf16"."""
        return str(self._model.about["dtype"])

    @property
    def tp(self) -> int:
        """Over how many ranks it is spread."""
        return int(self._model.about["world"])

    @property
    def max_seq(self) -> int:
        """The most ids of a prompt and its answer together."""
        return int(self._model.about["max_seq"])

    @property
    def vocabulary(self) -> int:
        """How many ids there are."""
        return int(self._model.about["vocabulary"])

    @property
    def eos(self) -> frozenset[int]:
        """The ids that end an answer: those of config.json and generation_config.json."""
        return self._settings.eos

    # ---- words

    def encode(self, text: str) -> list[int]:
        """The ids of a text, as of a prompt of `generate`. Raises `maco.Error` where the checkpoint has no tokenizer.json."""
        if not isinstance(text, str):
            raise TypeError(f"a text is a str, not a {type(text).__name__}")
        return self._words.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        return self._words.tokenizer.decode(_ids(ids, "ids"))

    # ---- answers

    def generate(
        self,
        prompts: Any,
        max_new_tokens: int = 128,
        temperature: float = 0,
        top_k: int = 0,
        top_p: float = 1,
        min_p: float = 0,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
    ) -> Any:
        """What comes behind prompts: an `Answer` for one prompt, a list of them for a list of prompts, one after the other.

        A prompt is a str, which needs the checkpoint's tokenizer, or ids, a list of integers; `prompts` is one of these or a list of them.
        Up to `max_new_tokens` ids come behind each, fewer where an id of `eos` or a string of `stop` comes, or `max_seq` is reached.

        `temperature` 0 takes the likeliest id. Above 0 one is drawn, as transformers' generate does with do_sample: logits are divided by
        `temperature`; the `top_k` likeliest remain (0: all), of these the likeliest that together have `top_p`, of these those with `min_p`
        of the highest probability. The same `seed` gives the same ids; without one they are others each time. `repetition_penalty` above 1
        makes ids less likely that are in the prompt or the answer; if it isn't given it is what generation_config.json says.

        With `stream` the answer to one prompt comes as an iterator of `Piece`s: strs with whole characters, which together are its text,
        and their ids; a piece an id without a tokenizer. The last one has the `finish_reason`. Close it to end early.

        Ctrl-C ends it, and the LLM can be used again. Raises `maco.Error` for prompts that are empty, longer than `max_seq` - 1 or have
        ids that the model doesn't have, and for other arguments out of range.
        """
        single, asked = _prompts(prompts)
        request = self._request(max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop)
        ids = [self._checked(self._words.tokenizer.encode(one) if isinstance(one, str) else one) for one in asked]
        return self._answers(ids, single, request, stream)

    def chat(
        self,
        messages: Sequence[Any],
        max_new_tokens: int = 128,
        temperature: float = 0,
        top_k: int = 0,
        top_p: float = 1,
        min_p: float = 0,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> Any:
        """The answer to a chat, written as the checkpoint's chat template says, or a list of answers to a list of chats.

        `messages` are `{"role": "user", "content": "..."}` and the like. `tools`: JSON schemas of functions that the model may call.
        `add_generation_prompt`: the text ends with the beginning of an answer. `variables`: more that the template knows, as
        `{"enable_thinking": False}`. Everything else is as of `generate`. Raises `maco.Error` where the checkpoint has no template, or it
        refuses the messages.
        """
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
            raise TypeError(f"messages are a list of {{'role': ..., 'content': ...}}, not a {type(messages).__name__}")
        several = bool(messages) and isinstance(messages[0], (list, tuple))
        request = self._request(max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop)
        words = self._words
        texts = [words.template.render(chat, tools, add_generation_prompt, variables) for chat in (messages if several else [messages])]
        # The template has written what stands around it, too.
        ids = [self._checked(words.tokenizer.encode(text, special=False)) for text in texts]
        return self._answers(ids, not several, request, stream)

    def logits(self, prompt: Any) -> Any:
        """The logits at every position of a prompt, a str or ids: NumPy's f32 [ids, vocabulary]. Row i is about the id behind the i-th."""
        _, asked = _prompts(prompt)
        if len(asked) != 1:
            raise TypeError("logits() takes one prompt")
        ids = self._checked(self._words.tokenizer.encode(asked[0]) if isinstance(asked[0], str) else asked[0], whole=True)
        need_numpy()
        with self._turn("asks for logits", [ids], None) as turn:
            return turn.engine.logits(ids)

    # ---- arguments

    def _request(
        self,
        most: Any,
        temperature: Any,
        top_k: Any,
        top_p: Any,
        min_p: Any,
        penalty: Any,
        seed: Any,
        stop: Any,
    ) -> _Request:
        penalty = self._settings.repetition_penalty if penalty is None else penalty
        how = Sampling.checked(temperature, top_k, top_p, min_p, penalty)
        if not how.on_device:
            need_numpy()
        if stop is not None and not isinstance(stop, (str, Sequence)):
            raise TypeError(f"stop is a string or a list of strings, not a {type(stop).__name__}")
        words = (stop,) if isinstance(stop, str) else tuple(stop or ())
        if any(not isinstance(word, str) for word in words):
            raise TypeError("stop is a string or a list of strings")
        if "" in words:
            raise Error("a stop string has at least one character")
        if words:
            self._words.tokenizer  # noqa: B018 - it must be there
        return _Request(integer(most, "max_new_tokens", 0), how, None if seed is None else integer(seed, "seed", 0), words)

    def _checked(self, ids: list[int], whole: bool = False) -> list[int]:
        if not ids:
            raise Error("a prompt is empty: it has at least one id")
        if len(ids) > self.max_seq - (not whole):
            raise Error(
                f"a prompt has {len(ids)} ids, and this model takes {self.max_seq - (not whole)} at most: "
                f"its caches have {self.max_seq} rows (max_seq)"
            )
        if min(ids) < 0 or max(ids) >= self.vocabulary:
            wrong = next(one for one in ids if not 0 <= one < self.vocabulary)
            raise Error(f"a prompt has id {wrong}, but the model's go from 0 to {self.vocabulary - 1}")
        return ids

    # ---- the answers under way

    def _answers(self, ids: list[list[int]], single: bool, request: _Request, stream: bool) -> Any:
        if stream and not single:
            raise Error("stream=True gives the answer to one prompt; ask for several one by one")
        if stream:
            return self._pieces(ids[0], request)
        made = []
        with self._turn("answers", ids, request) as turn:
            for number, prompt in enumerate(ids):
                if number:
                    turn.engine.settle()
                    turn.engine.begin()
                new: list[int] = []
                texts: list[str] = []
                words = TextStream(self._words.tokenizer, request.stop) if request.stop else None
                reason = ""
                for piece in self._run(turn, prompt, request, number, words):
                    new += piece.token_ids
                    texts.append(piece)
                    reason = piece.finish_reason or ""
                text = "".join(texts) if request.stop else None
                made.append(Answer(new, reason, text, self._words, len(new) - (bool(new) and new[-1] in self.eos)))
        return made[0] if single else made

    def _pieces(self, ids: list[int], request: _Request) -> Iterator[Piece]:
        words = TextStream(self._words.tokenizer, request.stop) if self._words.there else None
        with self._turn("streams", [ids], request) as turn:
            self._streaming = True
            try:
                for piece in self._run(turn, ids, request, 0, words):
                    yield piece
                    self._owner = threading.get_ident()
                    if self._engine is None:
                        raise Error("the LLM was closed")
            finally:
                self._streaming = False

    def _run(self, turn: _Turn, ids: list[int], request: _Request, number: int, words: TextStream | None) -> Iterator[Piece]:
        """The pieces of one answer; where there are words, ids wait until there is text. Leaves launches under way."""
        count = min(request.most, self.max_seq - len(ids))
        if count == 0:
            yield Piece._made("", [], "length")
            return
        if request.how.on_device:
            source = turn.engine.greedy(ids, count)
        else:
            source = turn.engine.chosen(ids, count, Sampler(request.how, ids, self.vocabulary, (turn.seed, number)))
        waiting: list[int] = []
        for i, token in enumerate(source):
            turn.digest = zlib.crc32(b"%d " % token, turn.digest)
            waiting.append(token)
            ended = token in self.eos
            text = words.add(token) if words is not None and not ended else ""
            if ended or i + 1 == count or (words is not None and words.stopped):
                if words is not None:
                    text += words.finish()
                reason = "stop" if ended or (words is not None and words.stopped) else "length"
                yield Piece._made(text, waiting, reason)
                return
            if text or words is None:
                yield Piece._made(text, waiting, None)
                waiting = []

    @contextmanager
    def _turn(self, doing: str, ids: list[list[int]], request: Any) -> Iterator[_Turn]:
        """A block in which the engine is the caller's, for the same on all ranks; what is under way at its end is waited for."""
        self._take()
        try:
            prepare()
            turn = self._together(doing, ids, request)
            try:
                yield turn
                turn.engine.settle()
            except GeneratorExit:
                turn.engine.settle()
                raise
            except BaseException as error:
                if self._group is not None and not turn.engine.told:
                    # The other ranks may have got as far as this one, or wait for it. All ranks open their sessions anew.
                    self._group.fail(f"{type(error).__name__} {error}".rstrip())
                why = turn.engine.give_up()
                if why is not None and isinstance(error, Error):
                    raise why from error
                raise
            if self._group is not None:
                self._group.meet(f"has ended what it {doing}{SECRET}{turn.digest:08x}{SECRET}")
        finally:
            self._lock.release()

    def _take(self) -> None:
        own = threading.get_ident()
        if not self._lock.acquire(blocking=False):
            if self._owner == own and self._streaming:
                raise Error("an answer of this LLM is still being streamed: take it to its end, or close() the stream")
            # Ctrl-C may have come when this thread had just taken the lock, or was about to release it.
            while self._owner != own and not self._lock.acquire(timeout=0.1):
                pass
        self._owner = own

    def _together(self, doing: str, ids: list[list[int]], request: Any) -> _Turn:
        """Begins a request on all ranks. Opens the sessions anew if a rank was stopped in the middle of an answer."""
        if self._engine is None:
            raise Error("the LLM was closed")
        if self._engine.under_way:
            self._engine.give_up()  # a second Ctrl-C ended the wait for the engine
        seed = getattr(request, "seed", None)
        group = self._group
        if group is not None:
            groups.settle()
            digest = zlib.crc32(repr((ids, request)).encode())
            generation = group.meet(f"{doing} of a model{SECRET}{digest:08x}{SECRET}")
            if generation != self._generation:
                self._engine.close()
                try:
                    self._engine = self._opened()
                except BaseException as error:
                    group.fail(f"{type(error).__name__} {error}".rstrip())
                    raise
                self._generation = generation
        if seed is None:
            seed = secrets.randbelow(_SEEDS)
            if group is not None and request is not None and request.how.temperature > 0:
                seed = int(group.exchange(str(seed), what="agrees on a seed")[0])
        self._engine.begin()
        return _Turn(self._engine, seed)

    # ---- its end

    def close(self) -> None:
        """Frees its memory. Doing so twice is allowed."""
        mine = self._owner == threading.get_ident()  # with a stream that isn't at its end
        taken = self._lock.acquire(blocking=not mine)
        try:
            if self._engine is not None:
                self._engine.give_up()
                self._engine.close()
                self._engine = None
        finally:
            if taken:
                self._lock.release()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._engine is None

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.LLM: load the checkpoint where it is needed")

    def __repr__(self) -> str:
        name, state = self._model.about.get("architecture", ""), ", closed" if self.closed else ""
        return f"<maco.LLM {name} in {self.dtype} on {self.tp} rank{'' if self.tp == 1 else 's'} ({self.device}){state}>"


@dataclass
class _Turn:
    """A caller's use of the engine."""

    engine: Engine
    seed: int
    digest: int = 0
    """Of the ids so far."""


# ---- arguments, machines


def _prompts(given: Any) -> tuple[bool, list[Any]]:
    """Whether one prompt was given, and the prompts, each a str or a list of ids."""
    if isinstance(given, str):
        return True, [given]
    rows = _listed(given, "a prompt is a str or a list of ids, and several are a list of these")
    if not any(isinstance(one, (str, list, tuple, range)) or hasattr(one, "__len__") for one in rows):
        return True, [_ids(rows, "a prompt")]
    return False, [one if isinstance(one, str) else _ids(one, "a prompt") for one in rows]


def _ids(given: Any, what: str) -> list[int]:
    found = _listed(given, f"{what} is a list of ids")
    if not all(type(one) is int for one in found):
        found = [integer(one, f"an id of {what}") for one in found]
    return found


def _listed(given: Any, expected: str) -> list[Any]:
    given = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, (Sequence, Iterator)):
        raise TypeError(f"{expected}, not a {type(given).__name__}")
    return list(given)


def _device(device: Any) -> str:
    if device is not None:
        return chosen(device, _native.DEVICES, "the device")
    told = _native.environment_device()
    if told:
        return told
    from ..roles import _gpu_sms

    if not _gpu_sms(0):
        raise Unavailable('there is no NVIDIA GPU; device="cpu" (or MACO_DEVICE=cpu) runs on the CPU target, for small models')
    return "cuda"


def _group(tp: int) -> groups.Group | None:
    """The processes that have a rank each; None: this process has all of them."""
    size = groups.get_world_size()
    if tp == 1 or size == 1:
        return None
    if size != tp:
        raise Error(f"tp is {tp}, but there are {size} processes: start {tp} of them, or one; with tp=1 each has a model of its own")
    return groups.default()


def _gpu_index(ranks: int) -> int:
    """The GPU of this process's rank, or of the first of several. Raises `maco.Unavailable` if there are fewer GPUs."""
    from ..roles import _gpu_index as usual
    from ..roles import _gpu_sms

    there = next((gpu for gpu in range(ranks) if not _gpu_sms(gpu)), ranks)
    if there < ranks:
        seen = "no NVIDIA GPU" if not there else f"{there} GPU{'' if there == 1 else 's'}"
        raise Unavailable(f'tp={ranks} needs a GPU for each rank, and this process sees {seen}; device="cpu" runs on the CPU target')
    index = usual() if ranks == 1 else 0
    return index if _gpu_sms(index) else 0
