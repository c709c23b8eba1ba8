"""What a slot pool is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionNames:
    """What those who set the options of a pool call them, for messages; empty for one that they cannot set."""

    max_hosts: str = "max_hosts"
    slots_per_host: str = "slots_per_host"
    acquire_timeout: str = "acquire_timeout"
    start_timeout: str = "start_timeout"
    max_waiting: str = "max_waiting"

    @classmethod
    def within(cls, option: str) -> Self:
        """Return the names of options that are those of one option, as `pool.max_hosts`."""
        return cls(**{name: f"{option}.{name}" for name in cls.__slots__})

    def advise_raising(self, *options: str) -> list[str]:
        """Return "raise A or B" for those of the options that can be set, else nothing."""
        names = [name for option in options if (name := getattr(self, option))]
        return [f"raise {' or '.join(names)}"] if names else []


class PoolOptions(BaseModel):
    """Bounds and times of a slot pool; times in seconds."""

    model_config = ConfigDict(extra="forbid")

    min_hosts: int = Field(default=0, ge=0)
    """Hosts that are kept although nobody uses them, from the first sandbox on."""
    max_hosts: int = Field(default=4, ge=1)
    slots_per_host: int = Field(default=16, ge=1)
    """Slots of a host at a time; where the backend allows fewer, its number holds."""
    acquire_timeout: float = Field(default=60.0, gt=0)
    """How long a trajectory waits for a slot in a queue that does not move. The start of a host that it waits for is no
    part of that: `start_timeout` bounds it."""
    max_waiting: int = Field(default=10000, ge=1)
    """How many may wait at a time; whoever comes then is refused at once."""
    start_timeout: float = Field(default=600.0, gt=0)
    """How long the start of a host may take; then it is given up, and has failed. One that takes more than half of
    `acquire_timeout` keeps no other from starting meanwhile. The members of a pool may take as long to offer one."""
    idle_timeout: float = Field(default=120.0, ge=0)
    """After what time without use a host above `min_hosts` is ended; 0 ends it with its last slot."""
    health_interval: float = Field(default=15.0, gt=0)
    """How often each host is asked whether it is well."""
    health_timeout: float = Field(default=10.0, gt=0)
    """How long it may take to answer."""
    quarantine: float = Field(default=60.0, ge=0)
    """How long a host that was not well takes nobody before it is asked again, once."""
    concurrent_starts: int = Field(default=4, ge=1)
    """Hosts that may be starting at a time, at most; failures, slow starts and a loaded machine make it fewer."""
    max_failures: int = Field(default=3, ge=1)
    """After how many failed starts in a row those who wait are told why, where no host of their kind works."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_hosts > self.max_hosts:
            raise ValueError(f"min_hosts is {self.min_hosts}, more than max_hosts, which is {self.max_hosts}")
        return self
