"""What a run's config says about a pool of backends."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hermes_core.specs import Ref
from hermes_pool.options import PoolOptions


class MemberOptions(BaseModel):
    """One backend of a pool."""

    model_config = ConfigDict(extra="forbid")

    backend: str
    options: dict[str, Any] = Field(default_factory=dict)
    """Its own options; secrets are best left to the environment variables that it reads."""


class PoolBackendOptions(PoolOptions):
    """Options of backend `pool`: those of a slot pool, which hold for each member, and the members."""

    backends: list[MemberOptions] = Field(default_factory=list)
    """The members; each is asked for slots by how many it has free."""
    backend: str | None = None
    """The only member, in short."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Its options."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.backend is not None and self.backends:
            raise ValueError("name the members in `backends`, or the only one in `backend`, not both")
        if self.backend is None and self.options:
            raise ValueError("`options` are those of `backend`, which is not given")
        for member in self.members:
            if member.backend.rpartition(":")[2] == "pool":
                raise ValueError("a pool is no member of a pool; list its members")
        return self

    @property
    def members(self) -> list[MemberOptions]:
        """The members, however they were written."""
        if self.backend is None:
            return self.backends
        return [MemberOptions(backend=self.backend, options=self.options)]

    def parts(self) -> dict[str, Ref]:
        """Return the members by the paths of their options, of which only they know what is secret."""
        paths = ["options"] if self.backend is not None else [f"backends.{n}.options" for n in range(len(self.members))]
        refs = (Ref(kind="backend", name=member.backend, options=member.options) for member in self.members)
        return dict(zip(paths, refs, strict=True))
