"""Parsers built from metadata, the `response_template` of a model's tokenizer, so that a new model needs no code.

The format is that of `transformers` (read in 5.23, `transformers/utils/chat_parsing`; vLLM 0.33's parser `hf` and
SGLang 0.5.23's `response_template` carry copies of it; documented there under "Response Parsing"). A template is an
object in `tokenizer_config.json`:

* `fields`: the parts of a message; here `tool_calls`, `content` and the reasoning, which is called `thinking`,
  `reasoning_content` or `reasoning`. Each begins at `open` (a literal or several) or `open_pattern` (a regular
  expression), and ends at `close` or `close_pattern`. `content` may lack an opening: it then takes all text that no
  other field claims.
* `content` of a field says how its text is read: `text`, `json` (with `string_delims`, `unquoted_keys` and
  `allow_non_json`), `xml-inline` (a `tag_pattern` with the groups key and value, a `value_parser`, `merge_duplicates`)
  or `kv-lines` (`line_sep`, `kv_sep`, `strip`, `value_parser`).
* `transform` builds a call from it: placeholders name a capture of the opening or a key of the content.
  `transform_each` does so for each member of a list.
* `start_anchor` or `start_anchor_pattern` finds the model's part in a prompt. Parsers do not see the prompt:
  `reasoning_opened` says that the prompt has opened the reasoning, and so does a closing mark of reasoning without an
  opening one.
* `repeats`, `join`, `optional`, `defaults` and `version` are checked. They shape the message that `transformers`
  builds; here texts are always joined unchanged, calls are always a list, and a field that the model leaves out is not
  an error.

The contract of parsers requires these differences: the end of JSON is found by reading it, so a mark in a string ends
nothing; content keeps its white space; a value is read by the tool's schema, and by `value_parser` only without one; a
declared string keeps its indentation; a broken call does not affect other calls.

Patterns come with the model, and a backtracking match over model output can hang (sglang#31912). So patterns are
compiled to steps that never backtrack if that provably means the same (`matchers`), and are refused otherwise. The
older `response_schema` (a JSON schema with x-regex, transformers 4.57 to 5.12) is not supported, because its patterns
depend on lookaheads.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from hermes_core.contracts.parsing import ToolCallParser


def from_response_template(
    source: Mapping[str, Any] | str | PathLike[str],
    *,
    name: str = "response_template",
    promote_drafts: bool = False,
    reasoning_opened: bool = False,
) -> ToolCallParser:
    """Build a parser from a model's metadata.

    Args:
        source: The template, or a tokenizer's configuration that contains it: as a mapping, as JSON text, or as the
            path of a `tokenizer_config.json` or of the folder it is in.
        name: The key of the template in the configuration.
        promote_drafts: Turn calls that were drafted in reasoning into calls when no call follows.
        reasoning_opened: The prompt has already opened the reasoning, so the text begins inside it.

    Raises:
        TemplateError: There is no template, it is malformed, or a pattern in it cannot be matched in linear time.
    """
    from hermes_parsers.declarative.component import ResponseTemplateParser

    return ResponseTemplateParser(
        source=source, name=name, promote_drafts=promote_drafts, reasoning_opened=reasoning_opened
    )
