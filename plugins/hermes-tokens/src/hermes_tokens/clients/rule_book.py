"""The append rules of a run: one for each set of tools, each checked against the tokenizer's template."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ToolSchemas
from hermes_core.contracts.parsing import DeclaringParser, ToolCallParser
from hermes_tokens.clients.stop_tokens import branching_stops, ending_stops, family_stops

if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import AppendRule
    from hermes_tokens.tokenizer import ChatTokenizer

_REPORTED: Final = frozenset({"is_exact", "cases"})


class RuleBook:
    """Creates and checks the rules on first use; shared by the sessions of a `TokenModel`.

    `proof` is the result of the check without tools; None before it.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        *,
        parser: ToolCallParser | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        allow_branches: bool | None = None,
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        self.allow_branches = allow_branches
        self.proof: Mapping[str, Any] | None = None
        self._tokenizer = tokenizer
        self._parser = parser
        self._template_kwargs = dict(template_kwargs or {})
        self._sampling = dict(sampling or {})
        self._family_stops = family_stops(tokenizer, parser)
        self._warnings: set[str] = set()
        self._rules: dict[bytes, tuple[AppendRule, bool]] = {}

    def rule(self, tools: ToolSchemas) -> tuple[AppendRule, bool]:
        """Return the append rule for these tools, and whether it passed; raises `ConfigError` if it must pass."""
        if tools.encoded not in self._rules:
            self._rules[tools.encoded] = self._prove_rule(tools)
        return self._rules[tools.encoded]

    def family_stops(self, rule: AppendRule) -> frozenset[int]:
        """Return the parser's stop tokens to request.

        A stop token that the template does not write starts a branch, so it is requested only where branches are
        allowed: a model that continues after it would make up the tool's result.
        """
        if self.allow_branches is False:
            return self._family_stops & (rule.ends.written | rule.ends.marks)
        return self._family_stops

    def declarer(self) -> Mapping[str, str]:
        """Return the parser that declares the tools if the template does not list them."""
        from hermes_tokens.append_rule.offered_tools import PROBE, are_listed, parser_name

        template = self._tokenizer.template((PROBE,)).using(self._template_kwargs)
        is_wanted = isinstance(self._parser, DeclaringParser) and not are_listed(template, (PROBE,))
        return {"tools_declared_by": parser_name(self._parser)} if self._parser and is_wanted else {}

    def _prove_rule(self, tools: ToolSchemas) -> tuple[AppendRule, bool]:
        from hermes_tokens.append_rule.append import AppendRule
        from hermes_tokens.chat_template.template_check import prove_template

        rule = AppendRule(
            self._tokenizer,
            tools=_schemas(tools),
            parser=self._parser,
            template_kwargs=self._template_kwargs,
            stop_ids=ending_stops(self._tokenizer, self._sampling) | self._family_stops,
            may_replace=self.allow_branches is not False,
        )
        proof = prove_template(rule)
        if not self.allow_branches:
            proof.require()
        self._check_stops(rule)
        if not tools.encoded:
            self.proof = {name: value for name, value in proof.to_json().items() if name in _REPORTED}
        return rule, proof.is_exact

    def check_template_for_tools(self) -> None:
        """Check a template that is only for tools. A failure is not an error yet: the run may offer no tools."""
        from hermes_tokens.append_rule.offered_tools import PROBE

        if self._tokenizer.template_for((PROBE,)) == self._tokenizer.template_for(()):
            return
        try:
            self.rule(ToolSchemas.of([PROBE]))
        except ConfigError as error:
            self.warn(f"a conversation with tools will be refused: {error}")

    def _check_stops(self, rule: AppendRule) -> None:
        """Report stop tokens that make every turn a branch: an error if branches are not allowed, else one warning."""
        for fault in branching_stops(rule, self._sampling):
            if self.allow_branches is False and fault.is_certain:
                raise fault.error
            self.warn(str(fault.error))

    def warn(self, message: str) -> None:
        """Log a warning once."""
        if message not in self._warnings:
            self._warnings.add(message)
            logging.getLogger(__name__).warning("%s", message)


def _schemas(tools: ToolSchemas) -> Sequence[Mapping[str, Any]]:
    import json

    schemas: list[Mapping[str, Any]] = json.loads(tools.encoded) if tools.encoded else []
    return schemas
