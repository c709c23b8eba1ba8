"""A client for Atropos' trajectory API: waits for absent peers, and reports refusals clearly."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hermes_atropos.groups.grouping import Group
from hermes_core.contracts.errors import HermesError, UserError
from hermes_core.contracts.model import encode

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

_LARGE: Final = 2**16
_TIMEOUT: Final = 120.0
_LATER: Final = frozenset({408, 425, 429})
"""Temporary statuses of a proxy."""
_CONNECT: Final = 10.0
_START_HINT: Final = "start it with: run-api; or set rollout_server_url"


class ApiRefusedError(HermesError):
    """The trajectory API answered 4xx: it will never accept this request."""


class ApiForgotError(HermesError):
    """The trajectory API does not know this environment, because it was restarted."""


class ApiAwayError(HermesError):
    """The API does not answer, or a proxy answers instead. `may_have_run`: the request had been sent."""

    def __init__(self, message: str, *, may_have_run: bool = False) -> None:
        super().__init__(message)
        self.may_have_run = may_have_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The API's answer to a registration; `max_token_len` is the trainer's, -1 means no limit."""

    env_id: int
    wandb_name: str
    starting_step: int
    num_steps: int
    checkpoint_dir: str
    checkpoint_interval: int
    max_token_len: int = -1


class Patience:
    """Waits for a peer: logs the reason once, and gives up after `seconds`."""

    def __init__(
        self,
        seconds: float,
        interval: float,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval
        self._sleep = sleep
        self._clock = clock
        self._seconds = seconds
        self._until = clock() + seconds
        self._said = ""

    async def wait(self, message: str, hint: str) -> None:
        """Wait a little; raise `UserError` when the time is over."""
        if self._clock() >= self._until:
            raise UserError(f"{message}, for {self._seconds:g} s now", hint=hint)
        if message != self._said:
            self._said = message
            logger.warning("%s; waiting (%s)", message, hint)
        await self._sleep(self._interval)


class TrajectoryApi:
    """A client of one trajectory API. Requests raise `ApiAwayError`, `ApiForgotError` or `ApiRefusedError`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Close connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def register(self, fields: Mapping[str, Any], patience: Patience) -> Registration:
        """Register an environment once the API runs and its trainer has started."""
        while True:
            try:
                data = await self._ask("POST", "/register-env", fields)
            except ApiAwayError as error:
                await patience.wait(error.message, _START_HINT)
                continue
            if data.get("status") == "success":
                names = {"wandb_name", "env_id", "starting_step", "num_steps", "checkpoint_dir", "checkpoint_interval"}
                return Registration(**{name: data[name] for name in names})
            await patience.wait(
                f"the trajectory API at {self.url} runs, but its trainer has not started ({data.get('status')})",
                "start the trainer: it registers and requests its first batch",
            )

    async def info(self) -> Mapping[str, Any]:
        """Return the trainer's batch size and longest sequence."""
        return await self._ask("GET", "/info")

    async def wandb_info(self) -> Mapping[str, Any]:
        """Return the trainer's wandb project and group."""
        return await self._ask("GET", "/wandb_info")

    async def status(self, env_id: int) -> Mapping[str, Any]:
        """Return the step and the queue of this environment."""
        return await self._ask("GET", "/status-env", {"env_id": env_id})

    async def send(self, groups: Sequence[Group], env_id: int) -> str:
        """Send groups; return the API's status for them."""
        made = [{**group, "env_id": env_id} for group in groups]
        if len(made) == 1:
            data = await self._ask("POST", "/scored_data", made[0])
        else:
            data = await self._ask("POST", "/scored_data_list", made)
        word = str(data.get("status", "received"))
        return "buffered by the trajectory API until the sizes fit" if word == "buffered" else word

    async def has(self, group: Group) -> bool:
        """Return whether a group is the last one that arrived."""
        latest = (await self._ask("GET", "/latest_example")).get("group_overrides") or {}
        ours = group.get("group_overrides") or {}
        return "group_id" in ours and all(latest.get(key) == ours.get(key) for key in ("group_id", "part"))

    async def disconnect(self, env_id: int) -> None:
        """Unregister this environment, so that the others get its share; BaseEnv never does."""
        await self._ask("POST", "/disconnect-env", {"env_id": env_id})

    async def _ask(self, method: str, path: str, payload: Any = None) -> Mapping[str, Any]:
        body, headers = await _pack(payload)
        status, text = await self._exchange(method, path, body, headers)
        if status == 500:
            raise ApiForgotError(f"the trajectory API at {self.url} does not know this environment (500 on {path})")
        if status > 500 or status in _LATER:
            raise ApiAwayError(f"the trajectory API at {self.url} answers {status}")
        if status >= 400:
            raise ApiRefusedError(f"the trajectory API refuses {path} with {status}: {text[:500]}")
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ApiAwayError(
                f"expected JSON from {self.url}{path}, got something else; check that a trajectory API runs there"
            ) from error
        return data if isinstance(data, dict) else {}

    async def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str]:
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_TIMEOUT, sock_connect=_CONNECT)
            # With kept-alive connections, every closed one would leave it unknown whether the request ran.
            connector = aiohttp.TCPConnector(force_close=True)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        away = f"no trajectory API answers at {self.url}"
        try:
            async with self._session.request(method, self.url + path, data=body, headers=headers) as response:
                return response.status, await response.text()
        except aiohttp.ClientConnectorError as error:
            raise ApiAwayError(away) from error
        except aiohttp.InvalidURL as error:
            raise UserError(
                f"expected a URL as rollout_server_url, got {self.url!r}", hint="http://HOST:8000"
            ) from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise ApiAwayError(away, may_have_run=True) from error


async def _pack(payload: Any) -> tuple[bytes | None, dict[str, str]]:
    if payload is None:
        return None, {}
    headers = {"Content-Type": "application/json"}
    body = encode(payload)
    if len(body) < _LARGE:
        return body, headers
    return await asyncio.to_thread(gzip.compress, body, 1), {**headers, "Content-Encoding": "gzip"}
