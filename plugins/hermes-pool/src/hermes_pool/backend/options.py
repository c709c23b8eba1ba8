"""Options of backend `pool`."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hermes_core.specs import Ref
from hermes_pool.options import PoolOptions


class MemberOptions(BaseModel):
    """One member of a pool."""

    model_config = ConfigDict(extra="forbid")

    backend: str
    options: dict[str, Any] = Field(default_factory=dict)
    """The backend's options. Secrets belong in the environment variables that it reads."""


class PoolBackendOptions(PoolOptions):
    """Options of backend `pool`: those of a slot pool, which apply to each member, and the members."""

    backends: list[MemberOptions] = Field(default_factory=list)
    """The members. A sandbox goes to the one with the most room."""
    backend: str | None = None
    """The only member, instead of `backends`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The options of the only member."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.backend is not None and self.backends:
            raise ValueError("expected the members in `backends`, or the only one in `backend`; got both")
        if self.backend is None and self.options:
            raise ValueError("`options` are the options of `backend`, which is missing; name one")
        for member in self.members:
            if member.backend.rpartition(":")[2] == "pool":
                raise ValueError("a pool cannot be a member of a pool; list its members instead")
        return self

    @property
    def members(self) -> list[MemberOptions]:
        """The members, from `backends` or `backend`."""
        if self.backend is None:
            return self.backends
        return [MemberOptions(backend=self.backend, options=self.options)]

    def parts(self) -> dict[str, Ref]:
        """Return the members by the paths of their options: only the members know which of these are secret."""
        paths = ["options"] if self.backend is not None else [f"backends.{n}.options" for n in range(len(self.members))]
        refs = (Ref(kind="backend", name=member.backend, options=member.options) for member in self.members)
        return dict(zip(paths, refs, strict=True))
