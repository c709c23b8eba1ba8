"""Options of slot pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionNames:
    """Names of a pool's options in messages, as the user sets them; empty for an option that the user cannot set."""

    max_hosts: str = "max_hosts"
    slots_per_host: str = "slots_per_host"
    acquire_timeout: str = "acquire_timeout"
    start_timeout: str = "start_timeout"
    max_waiting: str = "max_waiting"

    @classmethod
    def within(cls, option: str) -> Self:
        """Return the names of options that are fields of another one, such as `pool.max_hosts`."""
        return cls(**{name: f"{option}.{name}" for name in cls.__slots__})

    def advise_raising(self, *options: str) -> list[str]:
        """Return a list with "raise A or B", of the options that the user can set; empty if there are none."""
        names = [name for option in options if (name := getattr(self, option))]
        return [f"raise {' or '.join(names)}"] if names else []


class PoolOptions(BaseModel):
    """Bounds and times of a slot pool; times in seconds."""

    model_config = ConfigDict(extra="forbid")

    min_hosts: int = Field(default=0, ge=0)
    """The number of hosts that are kept, in use or not, after the first sandbox was opened."""
    max_hosts: int = Field(default=4, ge=1)
    slots_per_host: int = Field(default=16, ge=1)
    """Maximum slots of a host at a time. If the backend allows fewer, its number applies."""
    acquire_timeout: float = Field(default=60.0, gt=0)
    """How long a trajectory waits for a slot in a queue that does not move. While a host is being started, the queue
    counts as moving; `start_timeout` bounds that."""
    max_waiting: int = Field(default=10000, ge=1)
    """Maximum number of waiters; further requests are refused at once."""
    start_timeout: float = Field(default=600.0, gt=0)
    """How long the start of a host may take; then it is cancelled and has failed. After half of `acquire_timeout` it no
    longer counts as one of the concurrent starts. The members of a pool may take as long for their offers."""
    idle_timeout: float = Field(default=120.0, ge=0)
    """How long a host above `min_hosts` is kept without use; with 0 it ends when its last slot is given back."""
    health_interval: float = Field(default=15.0, gt=0)
    """Interval of the health checks of each host."""
    health_timeout: float = Field(default=10.0, gt=0)
    """How long a host may take to answer a health check."""
    quarantine: float = Field(default=60.0, ge=0)
    """How long an unhealthy host gives out no slots before it is checked once more. Also how long hosts are started on
    other members of a pool after a member has failed."""
    concurrent_starts: int = Field(default=4, ge=1)
    """Maximum number of hosts that may be starting at a time. Failures, slow starts and a loaded machine lower it."""
    max_failures: int = Field(default=3, ge=1)
    """Number of failed starts in a row after which waiters get the error, if no host of their kind works."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_hosts > self.max_hosts:
            raise ValueError(f"min_hosts is {self.min_hosts}, more than max_hosts, which is {self.max_hosts}")
        return self
