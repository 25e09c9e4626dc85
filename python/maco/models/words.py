"""A checkpoint's tokenizer and chat template, read when they are first needed."""

from __future__ import annotations

import threading

from .template import ChatTemplate
from .text import Tokenizer, has_tokenizer

__all__ = ["Words"]


class Words:
    """The tokenizer and chat template of the checkpoint in a folder. Answers hold this object; they may outlive the model."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._tokenizer: Tokenizer | None = None
        self._template: ChatTemplate | None = None

    @property
    def there(self) -> bool:
        """Whether there is a tokenizer, and the package that reads it."""
        return self._tokenizer is not None or has_tokenizer(self._folder)

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises as `Tokenizer`."""
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = Tokenizer(self._folder)
            return self._tokenizer

    @property
    def template(self) -> ChatTemplate:
        """Raises as `Tokenizer` and `ChatTemplate`."""
        with self._lock:
            if self._template is None:
                self._template = ChatTemplate(self._folder, self.tokenizer.special)
            return self._template
