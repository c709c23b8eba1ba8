"""Model clients: OpenAI-compatible chat, and the models `oracle` and `nop`, which need no server.

To write a client for another server, use `HttpChannel` and its helpers; to write a service, use `serve_application` and
`serve_until_stopped`.
"""

from __future__ import annotations

from hermes_core.lazy import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hermes_models.clients.address import ServerAddress
    from hermes_models.clients.http import ROLLOUT_HEADER, HttpAnswer, HttpChannel, HttpOptions, rollout_headers
    from hermes_models.clients.http_errors import RequestRefusal, embedded_status
    from hermes_models.clients.model_list import CHECK_TIMEOUT, check_listed
    from hermes_models.clients.openai import OpenAIChatClient
    from hermes_models.clients.replies import decode_json
    from hermes_models.embedded.nop import NopModel
    from hermes_models.embedded.oracle import OracleModel
    from hermes_models.factory import create_model
    from hermes_models.serving.aiohttp_server import serve_application
    from hermes_models.serving.until_stopped import serve_until_stopped

__all__ = [
    "CHECK_TIMEOUT", "ROLLOUT_HEADER", "HttpAnswer", "HttpChannel", "HttpOptions", "NopModel",
    "OpenAIChatClient", "OracleModel", "RequestRefusal", "ServerAddress", "check_listed", "create_model",
    "decode_json", "embedded_status", "rollout_headers", "serve_application", "serve_until_stopped",
]  # fmt: skip

if not TYPE_CHECKING:  # for a type checker every name would exist
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".clients.address": "ServerAddress",
            ".clients.http": "HttpAnswer HttpChannel HttpOptions ROLLOUT_HEADER rollout_headers",
            ".clients.http_errors": "RequestRefusal embedded_status",
            ".clients.model_list": "CHECK_TIMEOUT check_listed",
            ".clients.openai": "OpenAIChatClient",
            ".clients.replies": "decode_json",
            ".embedded.nop": "NopModel",
            ".embedded.oracle": "OracleModel",
            ".factory": "create_model",
            ".serving.aiohttp_server": "serve_application",
            ".serving.until_stopped": "serve_until_stopped",
        },
    )
