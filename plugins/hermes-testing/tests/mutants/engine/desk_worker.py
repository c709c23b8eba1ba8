"""A worker of the reference engine: runs the rollouts from its input, and ends when the input ends."""

from __future__ import annotations

import asyncio
import base64
import pickle
import sys

from hermes_core.contracts.engine import EngineRun
from hermes_core.contracts.errors import HermesError
from hermes_runner import LocalEngine
from hermes_testing import isolated_registry


def tell(*news):
    sys.stdout.write(base64.b64encode(pickle.dumps(news)).decode() + "\n")
    sys.stdout.flush()


def describe(error):
    """An error as plain values; an error that is not from the core fails the attempt."""
    if isinstance(error, HermesError):
        return type(error).__name__, error.message, error.hint
    return "BackendError", f"{type(error).__name__}: {error}", None


class Worker:
    def __init__(self):
        self.engine = LocalEngine()
        self.running = {}

    async def open(self, _key, modules, values):
        registry = isolated_registry(*modules)
        registry.forward_events(lambda hook, event: tell("event", hook, event), listened=values.pop("hooks"))
        await self.engine.open(
            EngineRun(registry=registry, on_turn=lambda rollout: tell("turned", rollout, None), **values)
        )

    async def refusals(self, _key, tasks):
        return {id_: describe(error) for id_, error in (await self.engine.refusals(tasks)).items()}

    async def run_rollout(self, _key, rollout):
        return await self.engine.run_rollout(rollout)

    async def answer(self, key, method, *arguments):
        try:
            tell("answer", key, await getattr(self, method)(key, *arguments))
        except asyncio.CancelledError:
            tell("cancelled", key, None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must be told
            tell("raised", key, describe(error))
        finally:
            del self.running[key]

    async def aclose(self):
        for task in (left := list(self.running.values())):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.engine.aclose()


async def main():
    worker, told = Worker(), asyncio.StreamReader(limit=2**26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    while line := await told.readline():
        order, key, *rest = pickle.loads(base64.b64decode(line))
        if order == "cancel":
            if key in worker.running:
                worker.running[key].cancel()
        else:
            worker.running[key] = asyncio.create_task(worker.answer(key, order, *rest))
    if "--stays" in sys.argv:
        # Longer than the suite waits, but limited, because nothing else would end it.
        await asyncio.sleep(60)
    await worker.aclose()


if __name__ == "__main__":
    asyncio.run(main())
