"""The start-up check: compare the append rule with the template's own rendering of probe conversations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from hermes_core.contracts.errors import ConfigError
from hermes_tokens.append_rule.append import AppendRule, ClosedTurn
from hermes_tokens.append_rule.offered_tools import OPENINGS, parser_name, without_controls
from hermes_tokens.append_rule.placeholders import BODY, common_start
from hermes_tokens.append_rule.stub_rendering import CONTENTS
from hermes_tokens.chat_template.probe_conversations import PROBES, ProbeConversation
from hermes_tokens.chat_template.template import TemplateError

CaseClass = Literal["ok", "unsupported", "failed"]
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofCase:
    """The result for one probe conversation. `expected` is the template's text, `found` the rule's, up to a difference.

    `unsupported`: the template refuses such a conversation or leaves out a message; `reason` says which.
    """

    name: str
    result: CaseClass
    reason: str = ""
    expected: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The results for one tokenizer, template, set of tools and template arguments."""

    cases: tuple[ProofCase, ...]
    milliseconds: float
    fingerprint: str
    with_tools: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the rule agrees with the template, in text and ids, in every case that the template supports."""
        return not self._faults()

    def require(self) -> None:
        """Raise `ConfigError` with the first difference, unless the rule is exact and supports what tools need."""
        faults = self._faults()
        if not faults:
            return
        case = faults[0]
        if case.result == "unsupported":
            raise ConfigError(
                f"expected a chat template with support for {_MEANING[case.name]}, got one without: {case.reason}",
                hint=_HINTS.get(case.name, "use the model's template for tools, or run without tools"),
            )
        raise ConfigError(
            f"expected the append rule and the chat template to agree on {case.name!r}, got a difference: "
            f"{case.reason}\n  template: {case.expected!r}\n  rule:     {case.found!r}",
            hint="allow branches, or use another template or a renderer made for this model",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the class of each case, and the first difference."""
        faults = self._faults()
        return {
            "is_exact": not faults,
            "milliseconds": round(self.milliseconds, 1),
            "cases": {case.name: case.result for case in self.cases},
            "reasons": {case.name: case.reason for case in self.cases if case.reason},
        }

    def _faults(self) -> list[ProofCase]:
        needed = {"opening", *(("tools", "tool_result") if self.with_tools else ())}
        return [
            case
            for case in self.cases
            if case.result == "failed" or (case.result == "unsupported" and case.name in needed)
        ]


_MEANING: Final[Mapping[str, str]] = {
    "opening": "a conversation that starts with a user message",
    "tools": "tools",
    "tool_result": "tool results",
}
_HINTS: Final[Mapping[str, str]] = {
    "tools": "use a parser that declares tools in the system prompt (--parser hermes, --parser deepseek_v3, …; "
    "hermes-core parsers list shows them), use the model's template for tools, or run without tools"
}


def prove_template(rule: AppendRule, clock: Callable[[], float] = time.perf_counter) -> Proof:
    """Compare rule and template on every probe conversation; takes milliseconds."""
    began = clock()
    harmless = _harmless(rule)
    cases = [*(_tools_case(rule) if rule.tools else ()), *(_case(harmless, probe) for probe in PROBES)]
    return Proof(
        cases=tuple(cases),
        milliseconds=(clock() - began) * 1000,
        fingerprint=rule.fingerprint,
        with_tools=bool(rule.tools),
    )


def _harmless(rule: AppendRule) -> AppendRule:
    """Return the rule for tools without control tokens' texts, which the template itself would make control ids."""
    tools = without_controls(rule.tools, rule.tokenizer.controls, "x")
    return rule if tools == rule.tools else rule.with_tools(tools)


def _tools_case(rule: AppendRule) -> Iterator[ProofCase]:
    """Check whether the prompt lists the tools at all."""
    try:
        reason = _tools_fault(rule)
    except TemplateError as error:
        where = "the tools must be declared in the system prompt, and " if rule.declaration else ""
        reason = f"{where}{error.message}"
    yield ProofCase(name="tools", result="unsupported" if reason else "ok", reason=reason)


def _tools_fault(rule: AppendRule) -> str:
    rule.renderer.render(OPENINGS[0])
    if rule.declaration:
        rule.renderer.render(OPENINGS[1])
    elif not rule.lists_tools:
        who = "no parser declares them" if rule.parser is None else f"{parser_name(rule.parser)} does not declare them"
        return f"it does not list the tools, and {who}"
    return ""


def _case(rule: AppendRule, probe: ProbeConversation) -> ProofCase:
    try:
        full = _render_case(rule, probe)
        both = _opening(rule, probe, full) if probe.turn is None else _turn(rule, probe, full)
    except TemplateError as error:
        return ProofCase(name=probe.name, result="unsupported", reason=error.message)
    return _compare(rule, probe.name, both)


def _render_case(rule: AppendRule, probe: ProbeConversation) -> str:
    """Return the template's text; calls that it leaves out are passed as content, as the model writes them."""
    texts = (rule.renderer.render(probe.with_content(content)) for content in CONTENTS)
    first = next(texts)
    if probe.turn is None or BODY in first:
        return first
    text = next((text for text in texts if BODY in text), None)
    if text is None:
        raise TemplateError("the template leaves out the assistant's text")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """The template's text and the rule's; `full` is the template's whole text.

    `before` is the id before the appended part, empty at the start of a conversation.
    """

    full: str
    expected: str
    found: str
    ids: Sequence[int]
    before: list[int]


def _opening(rule: AppendRule, probe: ProbeConversation, full: str) -> _Comparison:
    ids = rule.opening(probe.messages).ids
    return _Comparison(full=full, expected=full, found=rule.opening_text(probe.messages), ids=ids, before=[])


def _turn(rule: AppendRule, probe: ProbeConversation, full: str) -> _Comparison:
    assert probe.turn is not None
    new = probe.messages[probe.turn + 1 :]
    body = full.rindex(BODY) + len(BODY)
    shape, slotted = rule.shape(probe.calls, new, after_tools=probe.after_tools)
    before = [] if shape.close is None else [shape.close.token.id]
    closing = ClosedTurn(last_id=before[0] if before else None, calls=probe.calls)
    ids = rule.delta(closing, new, after_tools=probe.after_tools).ids
    if not before:  # nothing closes a turn: the body's own last id precedes the appended part
        before = rule.tokenizer.encode_scaffold(full[:body])[-1:]
    return _Comparison(full=full, expected=full[body:], found=shape.fill(slotted.values), ids=ids, before=before)


def _compare(rule: AppendRule, name: str, both: _Comparison) -> ProofCase:
    if both.expected != both.found:
        place = max(0, common_start(both.expected, both.found) - _SHOWN // 2)
        shown = slice(place, place + _SHOWN)
        return _failure(name, "the texts differ", both.expected[shown], both.found[shown])
    whole = rule.tokenizer.encode_scaffold(both.full)
    start = len(whole) - len(both.ids)
    own, ids = whole[start:], list(both.ids)
    if own == ids and whole[:start][-1:] == both.before:
        return ProofCase(name=name, result="ok")
    place = next((place for place, pair in enumerate(zip(own, ids, strict=False)) if pair[0] != pair[1]), 0)
    near = slice(max(0, place - 5), place + 10)
    reason = f"the texts agree but the ids differ: {own[near]} from the template, {ids[near]} from the rule"
    return _failure(name, reason, rule.tokenizer.decode(own[near]), rule.tokenizer.decode(ids[near]))


def _failure(name: str, reason: str, expected: str, found: str) -> ProofCase:
    return ProofCase(name=name, result="failed", reason=reason, expected=expected, found=found)
