"""The families of models that the engine serves: chat template, control tokens, and calls as a regular expression.

The templates are those of the installed distribution `trl`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from small_tokenizers import CONTROL, trl_templates

# They look like control tokens and are plain text to every family.
_WORDS: Final = ("<tools>", "</tools>")
_MAKER: Final = Path(__file__).with_name("make_tiny_model.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How models of one family write.

    `stops` end a turn: what the template writes behind a call. `marks` are the control tokens that are text: they
    stand around calls and thoughts. `call` is one call of the tool `terminal`, with `COMMAND` in place of the
    command, and `final` an answer without calls; both are regular expressions.

    `may_branch` says that the family's parser knows further stop tokens, one for each kind of turn. A random model
    takes any of them, also the one that the template writes behind another kind, and then a branch begins.
    """

    name: str
    parser: str
    stops: tuple[str, ...]
    marks: tuple[str, ...]
    call: str
    final: str = "Done[a-z]{1,8}"
    begin: str | None = None
    may_branch: bool = False
    more: tuple[str, ...] = ()

    @property
    def template(self) -> str:
        """The family's chat template."""
        return trl_templates()[self.name]

    def calls(self, command: str) -> str:
        """Return the expression of a call with a command, which is an expression itself."""
        return self.call.replace("COMMAND", command)

    def model_folder(self, python: Path, models: Path) -> Path:
        """Return the folder of this family's model, which is made where it is not there yet."""
        wanted = self._wanted()
        digest = hashlib.sha256(_MAKER.read_bytes() + json.dumps(wanted).encode()).hexdigest()[:8]
        folder = models / f"{self.name}-{digest}"
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            text = json.dumps({**wanted, "folder": str(partial)})
            subprocess.run([python, _MAKER], input=text, text=True, check=True, capture_output=True)
            partial.rename(folder)
        return folder

    def _wanted(self) -> dict[str, object]:
        template = self.template
        special = dict.fromkeys((*self.stops, *self.more, *sorted(CONTROL.findall(template))))
        return {
            "template": template,
            "stops": self.stops,
            "begin": self.begin,
            "marks": self.marks,
            "special": [text for text in special if text not in (*self.marks, *_WORDS)],
        }


_DEEPSEEK_MARKS: Final = tuple(
    f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
)
_LISTED: Final = (
    Family(
        name="qwen3",
        parser="hermes",
        stops=("<|im_end|>",),
        more=("<|endoftext|>",),
        marks=("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
        call=r'<tool_call>\n\{"name": "terminal", "arguments": \{"command": "COMMAND"\}\}\n</tool_call>',
    ),
    Family(
        name="llama3_1",
        parser="llama3_json",
        begin="<|begin_of_text|>",
        stops=("<|eot_id|>",),
        marks=(),
        more=("<|python_tag|>", "<|eom_id|>", "<|end_of_text|>"),
        call=r'\{"name": "terminal", "parameters": \{"command": "COMMAND"\}\}',
    ),
    Family(
        name="deepseekv3",
        parser="deepseek_v3",
        begin="<｜begin▁of▁sentence｜>",
        stops=("<｜end▁of▁sentence｜>",),
        marks=_DEEPSEEK_MARKS,
        call=(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>terminal\n"
            '```json\n\\{"command": "COMMAND"\\}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
        ),
    ),
    Family(
        name="glm4moe",
        parser="glm45",
        stops=("<|observation|>",),
        may_branch=True,
        more=("<|endoftext|>", "<|user|>"),
        marks=(
            *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
            *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
        call=(
            "\n<think></think>\n<tool_call>terminal\n<arg_key>command</arg_key>\n"
            "<arg_value>COMMAND</arg_value>\n</tool_call>"
        ),
        final="\n<think></think>\nDone[a-z]{1,8}",
    ),
    Family(
        name="gemma4",
        parser="gemma4",
        begin="<bos>",
        stops=("<|tool_response>",),
        may_branch=True,
        more=("<turn|>", "<eos>"),
        marks=("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"),
        call=r'<\|tool_call>call:terminal\{command:<\|"\|>COMMAND<\|"\|>\}<tool_call\|>',
    ),
)
FAMILIES: Final[Mapping[str, Family]] = MappingProxyType({family.name: family for family in _LISTED})
