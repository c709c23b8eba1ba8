"""Token ids: the append rule, the trajectory of a rollout, and the report on how exact it is.

Exports what a client of another token-level server needs, and the groups that a trainer receives. Each name is imported
on first use.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_tokens.append_rule.append import AppendRule
    from hermes_tokens.audit.recording_proxy import RecordingProxy
    from hermes_tokens.chat_template.template_check import prove_template
    from hermes_tokens.clients.factory import create_generate_client
    from hermes_tokens.clients.sampling import SamplingParameterError
    from hermes_tokens.clients.token_model import TokenModel
    from hermes_tokens.exactness import Exchange, check_exactness
    from hermes_tokens.generation import FinishReason, GenerateClient, Generated, GenerateRequest, TokenIds
    from hermes_tokens.tokenizer import ChatTokenizer
    from hermes_tokens.training_group import TrainingGroup, TrainingItem

__all__ = [
    "AppendRule", "ChatTokenizer", "Exchange", "FinishReason", "GenerateClient", "GenerateRequest", "Generated",
    "RecordingProxy", "SamplingParameterError", "TokenIds", "TokenModel", "TrainingGroup", "TrainingItem",
    "check_exactness", "create_generate_client", "prove_template",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".append_rule.append": "AppendRule",
            ".audit.recording_proxy": "RecordingProxy",
            ".chat_template.template_check": "prove_template",
            ".clients.factory": "create_generate_client",
            ".clients.sampling": "SamplingParameterError",
            ".clients.token_model": "TokenModel",
            ".exactness": "Exchange check_exactness",
            ".generation": "FinishReason GenerateClient GenerateRequest Generated TokenIds",
            ".tokenizer": "ChatTokenizer",
            ".training_group": "TrainingGroup TrainingItem",
        },
    )
