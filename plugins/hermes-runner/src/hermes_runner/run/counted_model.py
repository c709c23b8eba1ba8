"""A model client that says when it has answered: what the progress display counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from hermes_core.contracts.model import Message, ModelClient, ModelReply, ModelRequest
from hermes_core.contracts.tokens import Exactness, ModelSession, RecordingModel, TrainingSample


class CountedModel:
    """A model client that tells of every answer."""

    def __init__(self, model: ModelClient, turned: Callable[[str], None]) -> None:
        self._model = model
        self._turned = turned

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The model's own."""
        return self._model.provenance

    async def check(self) -> None:
        """Check the model."""
        await self._model.check()

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Ask the model."""
        reply = await self._model.chat(request)
        self._turned(request.rollout_id)
        return reply

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()


class CountedRecordingModel(CountedModel):
    """The same for a model whose rollouts talk to sessions."""

    def __init__(self, model: RecordingModel, turned: Callable[[str], None]) -> None:
        super().__init__(cast("ModelClient", model), turned)
        self._recording = model

    def session(self, rollout_id: str) -> CountedSession:
        """Begin to record a rollout."""
        return CountedSession(self._recording.session(rollout_id), self._turned)


class CountedSession:
    """A session that tells of every answer."""

    def __init__(self, session: ModelSession, turned: Callable[[str], None]) -> None:
        self._session = session
        self._turned = turned

    async def chat(self, request: ModelRequest) -> ModelReply:
        """Ask the model."""
        reply = await self._session.chat(request)
        self._turned(request.rollout_id)
        return reply

    def record_message(self, message: Message) -> None:
        """Hand it on."""
        self._session.record_message(message)

    def samples(self) -> Sequence[TrainingSample]:
        """The session's own."""
        return self._session.samples()

    def exactness(self) -> Exactness:
        """The session's own."""
        return self._session.exactness()

    def managed_state(self) -> Mapping[str, Any]:
        """The session's own."""
        return self._session.managed_state()


def count_turns(model: ModelClient, turned: Callable[[str], None]) -> ModelClient:
    """Return a model that tells of every answer."""
    return CountedRecordingModel(model, turned) if isinstance(model, RecordingModel) else CountedModel(model, turned)
