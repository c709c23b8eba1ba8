"""A model at token level: each rollout talks to a session that keeps what was sampled and appends to it.

The session never encodes again what the model wrote. A conversation that goes on as it was is continued by the append
rule; one that the caller changed begins a new branch, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.contracts.model import ModelReply, ModelRequest, ToolSchemas
from hermes_core.contracts.parsing import DeclaringParser, ToolCallParser
from hermes_tokens.clients.stop_tokens import branching_stops, ending_stops, family_stops
from hermes_tokens.generation import GenerateClient

if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import AppendRule
    from hermes_tokens.clients.token_session import TokenSession
    from hermes_tokens.tokenizer import ChatTokenizer

DEFAULT_MAX_TOKENS: Final = 4096
_NO_LOGPROBS: Final = (
    "samples have no logprobs: expected a number for each sampled token, got null from the server; "
    "look at its options for logprobs, or train by a method that needs none"
)
_REPORTED: Final = frozenset({"is_exact", "cases"})


class TokenModel:
    """Makes a chat model of a generate client and a tokenizer; implements `ModelClient` and `RecordingModel`.

    The append rule is proved for the tokenizer's template, once for each set of tools. A template that fails is an
    error, unless `allow_branches` is true: then every turn is written anew by the template, and begins a branch
    wherever that changes what was there. None: a branch begins where the caller edits the history, or where a turn
    ends with a stop token that the template does not write. False: nowhere.

    `parser` declares tools in the system prompt where the template does not list them: in what is sent, not in the
    conversation. Its stop tokens, at which the model's family ends a turn, are asked for in every request, as far as
    the tokenizer has them; where no branch may begin, only those that the template writes. `sampling` is what every
    request of the run asks for: its stop tokens are held against the template before the run. `max_tokens` bounds a
    turn whose request names no bound.
    """

    def __init__(
        self,
        client: GenerateClient,
        tokenizer: ChatTokenizer,
        *,
        parser: ToolCallParser | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        allow_branches: bool | None = None,
        sampling: Mapping[str, Any] | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
    ) -> None:
        self.client = client
        self.tokenizer = tokenizer
        self.parser = parser
        self.max_tokens = max_tokens
        self._template_kwargs = dict(template_kwargs or {})
        self.allow_branches = allow_branches
        self._sampling = dict(sampling or {})
        self._family_stops = family_stops(tokenizer, parser)
        self._warnings: set[str] = set()
        self._rules: dict[bytes, tuple[AppendRule, bool]] = {}
        self._proof: Mapping[str, Any] | None = None
        self._declared_by: Mapping[str, str] = {}

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The client's, which tokenizer and template, and what the start-up proof has found by case.

        `tools_declared_by` is there where the template does not list tools: the parser that declares them instead.
        """
        proof = {} if self._proof is None else {"template_proof": self._proof}
        return {**self.client.provenance, "tokenizer": self.tokenizer.fingerprint, **proof, **self._declared_by}

    async def check(self) -> None:
        """Prove the rules, ask the server, and sample one token: without logprobs nothing is trained."""
        from hermes_tokens.clients.logprob_probe import lacks_logprobs

        rule, _ = self.rule(ToolSchemas())
        self._check_template_for_tools()
        self._declared_by = self._declarer()
        await self.client.check()
        if await lacks_logprobs(self.client, rule):
            self._warn(_NO_LOGPROBS)

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Sample one turn of a conversation that nobody records."""
        return await self.session(request.rollout_id).chat(request)

    def session(self, rollout_id: str) -> TokenSession:
        """Begin to record a rollout."""
        from hermes_tokens.clients.token_session import TokenSession

        return TokenSession(self, rollout_id)

    async def aclose(self) -> None:
        """Close the client."""
        await self.client.aclose()

    def rule(self, tools: ToolSchemas) -> tuple[AppendRule, bool]:
        """Return the append rule for these tools, and whether it is proved; raises a `ConfigError` if it must be."""
        if tools.encoded not in self._rules:
            self._rules[tools.encoded] = self._prove_rule(tools)
        return self._rules[tools.encoded]

    def family_stops(self, rule: AppendRule) -> frozenset[int]:
        """Return the parser's stop tokens to ask for.

        One that the template does not write is not asked for where its branch is not allowed. Elsewhere it is: a model
        that runs on behind it makes up what the tool says.
        """
        if self.allow_branches is False:
            return self._family_stops & (rule.ends.written | rule.ends.marks)
        return self._family_stops

    def _declarer(self) -> Mapping[str, str]:
        from hermes_tokens.append_rule.offered_tools import PROBE, are_listed, parser_name

        template = self.tokenizer.template((PROBE,)).using(self._template_kwargs)
        is_wanted = isinstance(self.parser, DeclaringParser) and not are_listed(template, (PROBE,))
        return {"tools_declared_by": parser_name(self.parser)} if self.parser and is_wanted else {}

    def _prove_rule(self, tools: ToolSchemas) -> tuple[AppendRule, bool]:
        from hermes_tokens.append_rule.append import AppendRule
        from hermes_tokens.chat_template.template_check import prove_template

        rule = AppendRule(
            self.tokenizer,
            tools=_schemas(tools),
            parser=self.parser,
            template_kwargs=self._template_kwargs,
            stop_ids=ending_stops(self.tokenizer, self._sampling) | self._family_stops,
            may_replace=self.allow_branches is not False,
        )
        proof = prove_template(rule)
        if not self.allow_branches:
            proof.require()
        self._check_stops(rule)
        if not tools.encoded:
            self._proof = {name: value for name, value in proof.to_json().items() if name in _REPORTED}
        return rule, proof.is_exact

    def _check_template_for_tools(self) -> None:
        """Prove a template that is for tools alone. A refusal is no error yet: the run may offer no tools."""
        from hermes_tokens.append_rule.offered_tools import PROBE

        if self.tokenizer.template_for((PROBE,)) == self.tokenizer.template_for(()):
            return
        try:
            self.rule(ToolSchemas.of([PROBE]))
        except ConfigError as error:
            self._warn(f"a conversation with tools will be refused: {error.message}; {error.hint}")

    def _check_stops(self, rule: AppendRule) -> None:
        """Say what makes a branch of every turn: an error where there must be none, else a warning, once."""
        for fault in branching_stops(rule, self._sampling):
            if self.allow_branches is False and fault.is_certain:
                raise fault.error
            self._warn(f"{fault.error.message}; {fault.error.hint}")

    def _warn(self, message: str) -> None:
        if message not in self._warnings:
            self._warnings.add(message)
            logging.getLogger(__name__).warning("%s", message)


def _schemas(tools: ToolSchemas) -> Sequence[Mapping[str, Any]]:
    import json

    schemas: list[Mapping[str, Any]] = json.loads(tools.encoded) if tools.encoded else []
    return schemas
