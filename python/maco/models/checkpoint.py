"""What Python reads of a checkpoint's JSON files."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import Error

__all__ = ["Settings", "json_file", "settings"]

_CHANGE_TOKENS = {
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": 1,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "sequence_bias": None,
    "suppress_tokens": None,
}
"""Of generation_config.json: what changes greedy ids in transformers and isn't done here, and the value that changes nothing."""


@dataclass(frozen=True)
class Settings:
    """`eos`: ids that end an answer. `repetition_penalty`: what generation_config.json says, 1 if nothing. `positions`: how many the model
    is made for, if that is known."""

    eos: frozenset[int]
    repetition_penalty: float
    positions: int | None


def json_file(folder: str, name: str) -> dict[str, Any]:
    """An object from a file of the checkpoint's, {} where there is none. Raises `maco.Error` if it is something else."""
    path = Path(folder, name)
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Error(f"'{path}' can't be read: {error}") from error
    if not isinstance(found, dict):
        raise Error(f"'{path}' holds no JSON object")
    return found


def settings(folder: str, eos: Iterable[int] = ()) -> Settings:
    """The settings in config.json and generation_config.json; the ids in `eos`, which an importer found, end answers, too."""
    config, own = json_file(folder, "config.json"), json_file(folder, "generation_config.json")
    ids = set(eos)
    nested = config.get("text_config")
    for place, values in (("config.json", config), ("config.json", nested), ("generation_config.json", own)):
        if isinstance(values, Mapping):
            ids |= _ids(values.get("eos_token_id"), os.path.join(folder, place))
    penalty = own.get("repetition_penalty")
    if penalty is None:
        penalty = 1.0
    if isinstance(penalty, bool) or not isinstance(penalty, (int, float)) or not penalty > 0:
        raise Error(f"'{os.path.join(folder, 'generation_config.json')}': repetition_penalty is a number above 0, not {penalty!r}")
    left = [key for key, without in _CHANGE_TOKENS.items() if own.get(key) not in (None, without)]
    if left:
        warnings.warn(
            f"generation_config.json sets {', '.join(left)}, which maco.LLM doesn't do: its tokens may differ from those of transformers",
            stacklevel=4,
        )
    made_for = (nested if isinstance(nested, Mapping) else {}).get("max_position_embeddings", config.get("max_position_embeddings"))
    return Settings(frozenset(ids), float(penalty), made_for if isinstance(made_for, int) else None)


def _ids(value: Any, where: str) -> set[int]:
    found = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(one, bool) or not isinstance(one, int) for one in found):
        raise Error(f"'{where}': eos_token_id is an id or a list of ids, not {value!r}")
    return set(found)
