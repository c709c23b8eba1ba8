"""Read the inputs of `hermes-core parsers`: texts, chat templates and lists of tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hermes_core.contracts.errors import UserError

STDIN: Final = "-"
_RESPONSE_TEMPLATES: Final = ("response_template", "response_schema")
_IN_A_FOLDER: Final = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A chat template's text, where it was found, and whether the checkpoint describes its own output."""

    text: str
    source: str
    has_response_template: bool = False


def read_text(source: str, *, what: str) -> str:
    """Read a file or standard input; bytes that are not valid UTF-8 are replaced, with a warning on stderr."""
    if source == STDIN and sys.stdin.isatty():
        sys.stderr.write(f"paste {what}, then press Ctrl-D on an empty line\n")
    try:
        data = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"expected {what} from {source}: {reason}", hint="give a file, or - for standard input"
        ) from error
    text = data.decode("utf-8", "replace")
    if "\ufffd" in text and text.encode() != data:
        sys.stderr.write(f"{source}: bytes that are not valid UTF-8 are shown as \ufffd\n")
    return text


def read_template(source: str) -> Template:
    """Read a chat template from a template file, a tokenizer's or processor's JSON, or a model's folder."""
    if source != STDIN and Path(source).is_dir():
        return _from_folder(Path(source))
    text = read_text(source, what="a chat template")
    document = _json_object(text)
    return Template(text=text, source=source) if document is None else _from_config(document, source)


def read_tools(source: str) -> list[dict[str, Any]]:
    """Read a list of tool schemas.

    A list under the key `tools`, and functions without the `{"type": "function"}` wrapper, are accepted too.
    """
    text = read_text(source, what="a JSON list of tools")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UserError(f"{source} is not valid JSON: {error}", hint=_TOOLS_HINT) from error
    if isinstance(found, dict):
        found = found.get("tools")
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise UserError(f"{source}: expected a list of tool schemas", hint=_TOOLS_HINT)
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in found]


_TOOLS_HINT: Final = 'write [{"type": "function", "function": {"name": …, "parameters": {…}}}]'


def _from_folder(folder: Path) -> Template:
    config = folder / "tokenizer_config.json"
    document = _json_object(read_text(str(config), what="the tokenizer's settings")) if config.is_file() else None
    for name in _IN_A_FOLDER:
        path = folder / name
        if not path.is_file():
            continue
        if path.suffix == ".jinja":
            text = read_text(str(path), what="a chat template")
            return Template(text=text, source=str(path), has_response_template=_describes_itself(document))
        found = document if path == config else _json_object(read_text(str(path), what="a chat template"))
        if found is not None and "chat_template" in found:
            return _from_config(found, str(path))
    raise UserError(f"{folder} has no chat template", hint=f"expected one in {', '.join(_IN_A_FOLDER)}")


def _from_config(document: Mapping[str, Any], source: str) -> Template:
    template = document.get("chat_template")
    name = ""
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        # Old models store several templates by name; the one for tools is called tool_use.
        name = next((name for name in ("tool_use", "default") if name in named), "")
        template = named.get(name)
    if not isinstance(template, str):
        raise UserError(f"{source} has no chat_template", hint="look for chat_template.jinja beside it")
    where = f"{source} ({name})" if name else source
    return Template(text=template, source=where, has_response_template=_describes_itself(document))


def _describes_itself(document: Mapping[str, Any] | None) -> bool:
    return document is not None and any(document.get(key) for key in _RESPONSE_TEMPLATES)


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
