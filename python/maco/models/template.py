"""Chats as text, by the template that comes with a checkpoint: Jinja, run in a sandbox on plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import Error, Unavailable
from .checkpoint import json_file
from .text import read_text

__all__ = ["ChatTemplate"]


class ChatTemplate:
    """A checkpoint's chat template: chat_template.jinja, else what tokenizer_config.json has. `special` are words that it may name.

    Raises `maco.Unavailable` without the package `jinja2`, `maco.Error` where the checkpoint has none, or one that is wrong.
    """

    def __init__(self, folder: str, special: Mapping[str, str]) -> None:
        self._templates = _texts(folder)
        if not self._templates:
            raise Error(
                f"'{folder}' has no chat template (chat_template.jinja, or one in tokenizer_config.json): "
                f"it isn't made for chats; generate() takes its prompts as they are"
            )
        self._special = dict(special)
        self._environment = _environment()
        self._compiled: dict[str, Any] = {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The chat as text. `tools` are JSON schemas of functions; `variables` are what else the template knows, by name."""
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
            raise TypeError(f"messages are a list of {{'role': ..., 'content': ...}}, not a {type(messages).__name__}")
        if not messages:
            raise Error("a chat has at least one message")
        chat = []
        for message in messages:
            if not isinstance(message, Mapping):
                raise TypeError(f"a message is {{'role': ..., 'content': ...}}, not a {type(message).__name__}")
            # What says nothing is left out, as templates expect it.
            chat.append({key: _plain(value, "a message") for key, value in message.items() if value is not None})
        schemas = None
        if tools is not None:
            if any(not isinstance(tool, Mapping) for tool in tools):
                raise TypeError("tools are JSON schemas of functions, as dicts")
            schemas = [_plain(tool, "a tool") for tool in tools]
        import jinja2

        try:
            text: str = self._template(schemas is not None).render(
                **{
                    **self._special,
                    "messages": chat,
                    "tools": schemas,
                    "documents": None,
                    "add_generation_prompt": bool(add_generation_prompt),
                    **{key: _plain(value, f"'{key}'") for key, value in (variables or {}).items()},
                }
            )
        except jinja2.TemplateError as error:
            raise Error(f"the chat template refuses these messages: {error}") from error
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
            raise Error(f"the chat template can't take these messages: {type(error).__name__}: {error}") from error
        return text

    def _template(self, tools: bool) -> Any:
        name = "tool_use" if tools and "tool_use" in self._templates else "default"
        if name not in self._templates:
            raise Error(
                f"the checkpoint has several chat templates, but none that is called 'default': {', '.join(sorted(self._templates))}"
            )
        if name not in self._compiled:
            import jinja2

            try:
                self._compiled[name] = self._environment.from_string(self._templates[name])
            except jinja2.TemplateError as error:
                raise Error(f"the chat template is wrong: {error}") from error
        return self._compiled[name]


def _texts(folder: str) -> dict[str, str]:
    """The checkpoint's chat templates by name. Files have precedence."""
    found: dict[str, str] = {}
    file = Path(folder, "chat_template.jinja")
    if file.is_file():
        found["default"] = read_text(file)
    for one in sorted(Path(folder, "additional_chat_templates").glob("*.jinja")):
        found[one.stem] = read_text(one)
    if found:
        return found
    told = json_file(folder, "tokenizer_config.json").get("chat_template")
    if isinstance(told, str):
        return {"default": told}
    named = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    return {str(one.get("name")): str(one.get("template")) for one in named}


def _plain(value: Any, what: str) -> Any:
    """A copy of plain data, and of nothing else: templates come with checkpoints."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value if type(value) in (type(None), bool, int, float, str) else json.loads(json.dumps(value))
    if isinstance(value, Mapping):
        return {_plain(key, what): _plain(one, what) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, what) for one in value]
    raise TypeError(f"{what} is made of text, numbers, lists and mappings, and can't hold a {type(value).__name__}")


def _environment() -> Any:
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
    except ImportError:
        raise Unavailable("chat templates need the package jinja2, which isn't installed: pip install 'maco[models]'") from None

    class Marked(jinja2.ext.Extension):
        """{% generation %} ... {% endgeneration %}, which marks what a model says: the text inside."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        # Jinja's own filter escapes HTML.
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Names(jinja2.utils.Namespace):
        """A namespace without names that Python's own objects have."""

        def __init__(self, /, *given: Any, **named: Any) -> None:
            all_of = dict(*given, **named)
            for name in all_of:
                _check_name(name)
            super().__init__(all_of)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_name(name)
            super().__setitem__(name, value)

    def _check_name(name: Any) -> None:
        if not isinstance(name, str) or name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace can't have the name {name!r}")

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Marked, jinja2.ext.loopcontrols])
    made.filters["tojson"] = as_json
    made.globals["raise_exception"] = refuse
    made.globals["namespace"] = Names
    made.globals["dict"] = lambda *given, **named: dict(*given, **named)
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made
