"""A model at token level: each rollout talks to a session that keeps what was sampled and appends to it.

The session never encodes again what the model wrote. A conversation that goes on as it was is continued by the append
rule; one that the caller changed begins a new branch, with the reason.
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
    "samples have no logprobs: expected a number for each sampled token, got null from the server; "
    "look at its options for logprobs, or train by a method that needs none"
)


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
        self.rules = RuleBook(
            tokenizer, parser=parser, template_kwargs=template_kwargs, allow_branches=allow_branches, sampling=sampling
        )
        self._declared_by: Mapping[str, str] = {}

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The client's, which tokenizer and template, and what the start-up proof has found by case.

        `tools_declared_by` is there where the template does not list tools: the parser that declares them instead.
        """
        proof = {} if self.rules.proof is None else {"template_proof": self.rules.proof}
        return {**self.client.provenance, "tokenizer": self.tokenizer.fingerprint, **proof, **self._declared_by}

    async def check(self) -> None:
        """Prove the rules, ask the server, and sample one token: without logprobs nothing is trained."""
        from hermes_tokens.clients.logprob_probe import lacks_logprobs

        rule, _ = self.rules.rule(ToolSchemas())
        self.rules.check_template_for_tools()
        self._declared_by = self.rules.declarer()
        await self.client.check()
        if await lacks_logprobs(self.client, rule):
            self.rules.warn(_NO_LOGPROBS)

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Sample one turn of a conversation that nobody records."""
        return await self.session(request.rollout_id).chat(request)

    def session(self, rollout_id: str) -> TokenSession:
        """Begin to record a rollout."""
        from hermes_tokens.clients.token_session import TokenSession

        return TokenSession(self.client, self.tokenizer, self.rules, rollout_id, max_tokens=self.max_tokens)

    async def aclose(self) -> None:
        """Close the client."""
        await self.client.aclose()
