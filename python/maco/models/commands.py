"""`maco generate` and `maco chat`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .. import groups
from ..errors import Error
from .llm import LLM

__all__ = ["chat", "generate"]

_INTERRUPTED = 130


def _parser(command: str, line: str, about: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"maco {command}",
        usage=f"maco {command} {line}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _model_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model")
    group.add_argument("--device", metavar="cpu|cuda", help="where it runs; MACO_DEVICE, or else cuda")
    group.add_argument("--tp", type=int, default=1, metavar="N", help="ranks that share it: GPUs 0 to N - 1, or processes of torchrun")
    group.add_argument("--dtype", metavar="f32|f16|bf16", help="what it computes in; what the checkpoint says")
    group.add_argument("--max-seq", type=int, default=4096, metavar="N", help="ids of a prompt and its answer together, at most (4096)")
    group.add_argument("--chunk", type=int, metavar="N", help="ids of a prompt in one launch, at most")
    group.add_argument("--arch", metavar="FILE", help="describes an architecture that MACO doesn't know")
    group.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="that a launch may go on without progress (30)")


def _answer_arguments(parser: argparse.ArgumentParser, most: int) -> None:
    group = parser.add_argument_group("the answer")
    group.add_argument("--max-new-tokens", type=int, default=most, metavar="N", help=f"ids, at most ({most})")
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0, which is the default: always the likeliest id")
    group.add_argument("--top-k", type=int, default=0, metavar="K", help="draw from the K likeliest ids; 0: from all")
    group.add_argument("--top-p", type=float, default=1.0, metavar="P", help="draw from the likeliest that together have this probability")
    group.add_argument("--min-p", type=float, default=0.0, metavar="P", help="draw from those with this part of the highest probability")
    group.add_argument("--repetition-penalty", type=float, metavar="R", help="above 1: ids that were there are less likely")
    group.add_argument("--seed", type=int, metavar="S", help="the same seed gives the same ids")
    group.add_argument("--stop", action="append", metavar="TEXT", help="ends an answer; may be given several times")


def _how(given: argparse.Namespace) -> dict[str, Any]:
    names = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop")
    return {name: getattr(given, name) for name in names}


@contextlib.contextmanager
def _loaded(given: argparse.Namespace) -> Iterator[LLM]:
    with LLM(
        given.folder,
        given.tp,
        given.max_seq,
        given.dtype,
        given.device,
        chunk=given.chunk,
        architecture=given.arch,
        timeout=given.timeout,
    ) as llm:
        yield llm


def _speaks() -> bool:
    """Whether this process prints: of several that hold one model, rank 0."""
    return groups.get_rank() == 0


def _ids(text: str) -> list[int]:
    try:
        return [int(one) for one in text.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' are no ids: whole numbers with commas between them, as 1,2,3") from None


def generate(words: Sequence[str]) -> int:
    """Prints what comes behind a prompt; gives the exit status."""
    parser = _parser(
        "generate",
        "DIR [TEXT | --tokens 1,2,3] [options]",
        "What comes behind a prompt. DIR is a checkpoint's folder, TEXT the prompt; - reads it from standard input.",
    )
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("text", metavar="TEXT", nargs="?")
    parser.add_argument("--tokens", type=_ids, metavar="1,2,3", help="the prompt as ids; the new ones are printed likewise")
    _answer_arguments(parser, 128)
    _model_arguments(parser)
    given = parser.parse_args(list(words))
    if (given.text is None) == (given.tokens is None):
        parser.error("takes a prompt: TEXT, or --tokens")
    prompt = given.tokens
    if prompt is None:
        prompt = sys.stdin.read() if given.text == "-" else given.text
    try:
        with _loaded(given) as llm:
            if given.tokens is not None:
                answer = llm.generate(prompt, **_how(given))
                if _speaks():
                    print(",".join(map(str, answer.token_ids)), flush=True)
            else:
                _show(llm.generate(prompt, stream=True, **_how(given)))
    except KeyboardInterrupt:
        if _speaks():
            print(file=sys.stderr)
        return _INTERRUPTED
    return 0


def _show(pieces: Iterator[Any], said: list[str] | None = None) -> None:
    """Prints pieces as they come, and puts them into a list."""
    speaks = _speaks()
    for piece in pieces:
        if said is not None:
            said.append(piece)
        if piece and speaks:
            sys.stdout.write(piece)
            sys.stdout.flush()
    if speaks:
        print(flush=True)


def chat(words: Sequence[str]) -> int:
    """Answers what is typed, line by line; gives the exit status."""
    parser = _parser(
        "chat",
        "DIR [options]",
        "Answers line by line. Ctrl-C ends an answer, Ctrl-D the chat; /new begins anew, /exit ends. DIR is a checkpoint's folder.",
    )
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before anything else")
    _answer_arguments(parser, 1024)
    _model_arguments(parser)
    given = parser.parse_args(list(words))
    first = [] if given.system is None else [{"role": "system", "content": given.system}]
    try:
        with _loaded(given) as llm:
            llm.chat([*first, {"role": "user", "content": "."}], max_new_tokens=0)  # reports at once what is missing for a chat
            _talk(llm, first, _how(given))
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _talk(llm: LLM, first: list[dict[str, str]], how: dict[str, Any]) -> None:
    messages = list(first)
    group = groups.default() if llm.tp > 1 and groups.get_world_size() > 1 else None
    while True:
        line = _typed(group)
        if line is None or line.strip() == "/exit":
            return
        if line.strip() == "/new":
            messages = list(first)
            continue
        if not line.strip():
            continue
        asked = [*messages, {"role": "user", "content": line}]
        said: list[str] = []
        try:
            with contextlib.closing(llm.chat(asked, stream=True, **how)) as pieces:
                _show(pieces, said)
        except KeyboardInterrupt:
            if _speaks():
                print(flush=True)
        except Error as error:
            # The chat has become too long, or the template refuses it: what was said before still stands.
            if _speaks():
                print(f"maco chat: {error} (/new begins anew)", file=sys.stderr, flush=True)
            continue
        messages = [*asked, {"role": "assistant", "content": "".join(said)}]


def _typed(group: groups.Group | None) -> str | None:
    """The next line, which rank 0 reads; None at the end."""
    line: str | None = None
    if group is None or group.rank == 0:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            line = None
            if sys.stdin.isatty():
                print(file=sys.stderr)
    if group is None:
        return line
    told = group.exchange("" if line is None else "+" + line, 1e9, "reads what is typed")[0]
    return told[1:] if told else None
