"""Words and ids: a checkpoint's tokenizer, text while its ids come, and stop strings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import Error, Unavailable
from .checkpoint import json_file

__all__ = ["TextStream", "Tokenizer", "has_tokenizer", "read_text"]

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_BROKEN = "\ufffd"  # what stands for bytes that aren't whole characters


def has_tokenizer(folder: str) -> bool:
    """Whether the checkpoint has one, and the package that reads it is installed."""
    if not os.path.isfile(os.path.join(folder, "tokenizer.json")):
        return False
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        return False
    return True


class Tokenizer:
    """tokenizer.json of a checkpoint. Raises `maco.Unavailable` without the package `tokenizers`, `maco.Error` without the file.

    `special`: names of special tokens, as tokenizer_config.json has them, by what they are called there.
    """

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, "tokenizer.json")
        if not os.path.isfile(path):
            raise Error(f"'{folder}' has no tokenizer.json, which text needs; give ids in place of text (--tokens on the command line)")
        try:
            import tokenizers
        except ImportError:
            raise Unavailable("text needs the package tokenizers, which isn't installed: pip install 'maco[models]'") from None
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # the package raises nothing more particular
            raise Error(f"'{path}' can't be read: {error}") from error
        # A prompt is neither cut nor filled up, whatever the file was saved with.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = json_file(folder, "tokenizer_config.json")
        named = {**json_file(folder, "special_tokens_map.json"), **config}
        self.special = {key: word for key in _NAMED if (word := _word(named.get(key)))}
        known = {token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special}
        missing = [word for word in self.special.values() if word not in known]
        if missing:
            self._tokenizer.add_special_tokens(missing)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text; with `special` with those around it that the model is used to, as one for the beginning."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def _word(token: Any) -> str:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


class TextStream:
    """The text of ids as they come: whole characters, and nothing of a stop string, or of what may become one."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = [word for word in stop if word]
        self._ids: list[int] = []
        # The text up to `_read` is out. It is worked out from `_begin` on, so that words know what they stand behind.
        self._begin = self._read = 0
        self._held = ""  # may be the beginning of a stop string
        self.stopped = False
        """A stop string has come."""

    def add(self, token: int) -> str:
        """The text that has become certain by one more id."""
        self._ids.append(token)
        before, whole = self._window()
        if len(whole) <= len(before) or whole.endswith(_BROKEN):
            return ""
        self._begin, self._read = self._read, len(self._ids)
        return self._let_out(whole[len(before) :])

    def finish(self) -> str:
        """What is left at the end."""
        before, whole = self._window()
        self._begin = self._read = len(self._ids)
        out = self._let_out(whole[len(before) :])
        if not self.stopped:
            out, self._held = out + self._held, ""
        return out

    def _window(self) -> tuple[str, str]:
        decode = self._tokenizer.decode
        return decode(self._ids[self._begin : self._read]), decode(self._ids[self._begin :])

    def _let_out(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        # The stop string that is complete first counts, wherever ids end.
        found = [(at + len(word), at) for word in self._stop if (at := text.find(word)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, word) for word in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, word: str) -> int:
    """The most characters at the end of a text that a word begins with."""
    for count in range(min(len(text), len(word) - 1), 0, -1):
        if text.endswith(word[:count]):
            return count
    return 0


def read_text(path: Path) -> str:
    """A file's text. Raises `maco.Error` if it can't be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"'{path}' can't be read: {error}") from error
