"""Checkpoints: `LLM`, which answers, and `import_model`, which gives graphs."""

from __future__ import annotations

from .importing import Model, import_model
from .llm import LLM, Answer, Piece

__all__ = ["LLM", "Answer", "Model", "Piece", "import_model"]
