"""The start-up proof: the append rule against the template's own rendering of canned conversations."""

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
from hermes_tokens.chat_template.probe_conversations import CANNED, Canned
from hermes_tokens.chat_template.template import TemplateError

CaseClass = Literal["ok", "unsupported", "failed"]
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofCase:
    """One canned conversation. `expected` is the template's own text, `found` the rule's, up to where they differ.

    `unsupported`: the template refuses such a conversation, or leaves a message out; `reason` says which.
    """

    name: str
    result: CaseClass
    reason: str = ""
    expected: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was compared for one tokenizer, template, set of tools and template arguments."""

    cases: tuple[ProofCase, ...]
    milliseconds: float
    fingerprint: str
    with_tools: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the rule agrees with the template, in text and ids, wherever the template supports the case."""
        return not self._faults()

    def require(self) -> None:
        """Raise `ConfigError` with the first difference, unless the rule is exact and what tools need is supported."""
        faults = self._faults()
        if not faults:
            return
        case = faults[0]
        if case.result == "unsupported":
            raise ConfigError(
                f"a chat template with support for {_MEANING[case.name]} was wanted, found none: {case.reason}",
                hint=_HINTS.get(case.name, "use the model's template for tools, or run without tools"),
            )
        raise ConfigError(
            f"the append rule and the chat template were to agree on {case.name!r}, found that they differ: "
            f"{case.reason}\n  template: {case.expected!r}\n  rule:     {case.found!r}",
            hint="allow branches, or use another template or a renderer made for this model",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the classes by case, and what the first difference is."""
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
    "opening": "a conversation that begins with a user's message",
    "tools": "tools",
    "tool_result": "tool results",
}
_HINTS: Final[Mapping[str, str]] = {
    "tools": "name a parser that declares tools in the system prompt (--parser hermes, --parser deepseek_v3, …; "
    "hermes-core parsers list shows them), use the model's template for tools, or run without tools"
}


class Prover:
    """Proves rules and remembers what it proved; one object of a runtime."""

    def __init__(self) -> None:
        self._proofs: dict[str, Proof] = {}

    def prove(self, rule: AppendRule) -> Proof:
        """Return the proof for this tokenizer, template, tools and arguments."""
        if rule.fingerprint not in self._proofs:
            self._proofs[rule.fingerprint] = prove_template(rule)
        return self._proofs[rule.fingerprint]


def prove_template(rule: AppendRule, clock: Callable[[], float] = time.perf_counter) -> Proof:
    """Compare rule and template on every canned conversation; takes milliseconds."""
    began = clock()
    harmless = _harmless(rule)
    cases = [*(_tools_case(rule) if rule.tools else ()), *(_case(harmless, canned) for canned in CANNED)]
    return Proof(
        cases=tuple(cases),
        milliseconds=(clock() - began) * 1000,
        fingerprint=rule.fingerprint,
        with_tools=bool(rule.tools),
    )


def _harmless(rule: AppendRule) -> AppendRule:
    """Return the rule for tools without the texts of control tokens, which would be such in the template's own ids."""
    tools = without_controls(rule.tools, rule.tokenizer.controls, "x")
    return rule if tools == rule.tools else rule.with_tools(tools)


def _tools_case(rule: AppendRule) -> Iterator[ProofCase]:
    """Say whether the model gets to know of the tools at all."""
    try:
        reason = _tools_fault(rule)
    except TemplateError as error:
        where = "the tools are to be declared in the system prompt, and " if rule.declaration else ""
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


def _case(rule: AppendRule, canned: Canned) -> ProofCase:
    try:
        full = _render_case(rule, canned)
        both = _opening(rule, canned, full) if canned.turn is None else _turn(rule, canned, full)
    except TemplateError as error:
        return ProofCase(name=canned.name, result="unsupported", reason=error.message)
    return _compare(rule, canned.name, both)


def _render_case(rule: AppendRule, canned: Canned) -> str:
    """Return the template's text; a turn whose calls it leaves out has them as content, as the model writes them."""
    texts = (rule.renderer.render(canned.with_content(content)) for content in CONTENTS)
    first = next(texts)
    if canned.turn is None or BODY in first:
        return first
    text = next((text for text in texts if BODY in text), None)
    if text is None:
        raise TemplateError("the template leaves out what the assistant wrote")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """What the template writes and what the rule writes; `full` is the template's whole text.

    `before` is the id before what is appended, none at the start of a conversation.
    """

    full: str
    expected: str
    found: str
    ids: Sequence[int]
    before: list[int]


def _opening(rule: AppendRule, canned: Canned, full: str) -> _Comparison:
    ids = rule.opening(canned.messages).ids
    return _Comparison(full=full, expected=full, found=rule.opening_text(canned.messages), ids=ids, before=[])


def _turn(rule: AppendRule, canned: Canned, full: str) -> _Comparison:
    assert canned.turn is not None
    new = canned.messages[canned.turn + 1 :]
    body = full.rindex(BODY) + len(BODY)
    shape, slotted = rule.shape(canned.calls, new, after_tools=canned.after_tools)
    before = [] if shape.close is None else [shape.close.token.id]
    closing = ClosedTurn(last_id=before[0] if before else None, calls=canned.calls)
    ids = rule.delta(closing, new, after_tools=canned.after_tools).ids
    if not before:  # nothing closes a turn: the body's own last id is before what is appended
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
    reason = f"the texts agree, the ids do not: the template's are {own[near]}, the rule's {ids[near]}"
    return _failure(name, reason, rule.tokenizer.decode(own[near]), rule.tokenizer.decode(ids[near]))


def _failure(name: str, reason: str, expected: str, found: str) -> ProofCase:
    return ProofCase(name=name, result="failed", reason=reason, expected=expected, found=found)
