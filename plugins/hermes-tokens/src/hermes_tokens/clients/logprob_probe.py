"""Sample one token before a run to check that the server sends the logprobs that a trainer needs."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from hermes_core.contracts.errors import ModelError, ModelReplyError, ModelRequestError
from hermes_core.contracts.model import Message
from hermes_tokens.chat_template.template import TemplateError
from hermes_tokens.exactness import CHECK_PREFIX
from hermes_tokens.generation import GenerateClient, GenerateRequest, TokenIds

if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import AppendRule

_USER: Final[Message] = {"role": "user", "content": "Hello"}
_SECONDS: Final = 30.0


async def lacks_logprobs(client: GenerateClient, rule: AppendRule) -> bool:
    """Sample a token and return whether its logprob is null; raise `ModelReplyError` if the field is missing.

    A refused request also raises; other failures may be temporary, and the run will report them.
    """
    try:
        generated = await client.generate(
            GenerateRequest(
                prompt=TokenIds(rule.opening([_USER]).ids),
                sampling={"max_tokens": 1},
                request_id=f"{CHECK_PREFIX}{secrets.token_hex(4)}",
                timeout=_SECONDS,
            )
        )
    except (ModelReplyError, ModelRequestError):
        raise
    except (ModelError, TemplateError) as error:
        if error.fatal:
            raise
        return False
    return None in generated.logprobs
