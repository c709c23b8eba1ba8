"""Step-3: StepTML calls inside DeepSeek-like marks; values are verbatim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from hermes_parsers.engine.rendering import WrittenCall
from hermes_parsers.markup.dialect import Dialect, invoke_dialect
from hermes_parsers.markup.parser import MarkupParser


def _mark(name: str) -> str:
    # The wide bars are the model's own special characters.
    return f"<\uff5c{name}\uff5c>"


_BLOCK: Final = (_mark("tool_calls_begin"), _mark("tool_calls_end"))
_PREFIX: Final = f"{_mark('tool_call_begin')}function{_mark('tool_sep')}"
_SUFFIX: Final = _mark("tool_call_end")


class Step3Parser(MarkupParser):
    """`<steptml:invoke name="…">`, each between marks, in one block."""

    stop_tokens: ClassVar[tuple[str, ...]] = ("<|EOT|>",)
    dialects: ClassVar[tuple[Dialect, ...]] = (
        invoke_dialect("steptml:", (_BLOCK,), own_lines=False, prefix=_PREFIX, suffix=_SUFFIX),
    )
    openers: ClassVar[tuple[str, ...]] = dialects[0].openers

    def write_calls(self, calls: Sequence[WrittenCall]) -> str:
        """Write the calls in one block."""
        return f"{_BLOCK[0]}{super().write_calls(calls)}{_BLOCK[1]}"

    def write_call(self, call: WrittenCall, index: int) -> str:  # noqa: ARG002 - the base's signature
        """Write one call of a block."""
        values = [
            f'<steptml:parameter name="{name}">{self.write_value(value)}</steptml:parameter>'
            for name, value in call.value.items()
        ]
        return f'{_PREFIX}<steptml:invoke name="{call.name}">{"".join(values)}</steptml:invoke>{_SUFFIX}'
