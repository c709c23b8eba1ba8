"""A model at token level: each rollout has a session that keeps the sampled tokens and appends to them.

The session never re-encodes the model's text. The append rule continues an unchanged conversation; a conversation that
the caller edited starts a new branch with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hermes_core.contracts.model import ModelReply, ModelRequest, ToolSchemas
from hermes_core.contracts.parsing import ToolCallParser
from hermes_tokens.clients.rule_book import RuleBook
from hermes_tokens.generation import GenerateClient

if TYPE_CHECKING:
    from hermes_tokens.clients.token_session import TokenSession
    from hermes_tokens.tokenizer import ChatTokenizer

DEFAULT_MAX_TOKENS: Final = 4096
_NO_LOGPROBS: Final = (
    "samples have no logprobs: expected a number for each sampled token, got null from the server; check its options "
    "for logprobs, or train with a method that needs none"
)


class TokenModel:
    """A chat model built from a generate client and a tokenizer; implements `ModelClient` and `RecordingModel`.

    The append rule is checked against the tokenizer's template, once for each set of tools. A template that fails is an
    error unless `allow_branches` is true; then the template renders every prompt from scratch, and a branch starts
    wherever that changes earlier ids. With None, a branch starts where the caller edits the history or a turn ends with
    a stop token that the template does not write. With False, branches are refused.

    If the template does not list tools, `parser` declares them in the system prompt of each request, but not in the
    conversation. Every request also asks for the parser's stop tokens that the tokenizer knows; if branches are
    refused, only for those that the template writes. `sampling` holds the parameters of every request; its stop tokens
    are checked against the template before the run. `max_tokens` bounds a turn if its request has no bound.
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
        self.rules = RuleBook(
            tokenizer, parser=parser, template_kwargs=template_kwargs, allow_branches=allow_branches, sampling=sampling
        )
        self._declared_by: Mapping[str, str] = {}

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The client's provenance, the tokenizer and template, and the result of the start-up check by case.

        `tools_declared_by` is present if the template does not list tools: it names the parser that declares them.
        """
        proof = {} if self.rules.proof is None else {"template_proof": self.rules.proof}
        return {**self.client.provenance, "tokenizer": self.tokenizer.fingerprint, **proof, **self._declared_by}

    async def check(self) -> None:
        """Check the rules and the server, and sample one token, because training needs logprobs."""
        from hermes_tokens.clients.logprob_probe import lacks_logprobs

        rule, _ = self.rules.rule(ToolSchemas())
        self.rules.check_template_for_tools()
        self._declared_by = self.rules.declarer()
        await self.client.check()
        if await lacks_logprobs(self.client, rule):
            self.rules.warn(_NO_LOGPROBS)

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Sample one turn without recording it."""
        return await self.session(request.rollout_id).chat(request)

    def session(self, rollout_id: str) -> TokenSession:
        """Start recording a rollout."""
        from hermes_tokens.clients.token_session import TokenSession

        return TokenSession(self.client, self.tokenizer, self.rules, rollout_id, max_tokens=self.max_tokens)

    async def aclose(self) -> None:
        """Close the client."""
        await self.client.aclose()
