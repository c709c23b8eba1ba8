"""A program that runs one rollout of `NotesEnv` while one module cannot be imported; prints reward and own modules."""

from __future__ import annotations

import asyncio
import json
import sys


class Refusing:
    """Makes the module impossible to import."""

    def __init__(self, refused):
        self._refused = refused

    def find_spec(self, name, path=None, target=None):
        if name == self._refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(refused, fields):
    sys.meta_path.insert(0, Refusing(refused))
    from agent_envs import copying, run_one

    outcome, *_ = asyncio.run(run_one(copying, **json.loads(fields)))
    imported = sorted({name.partition(".")[0] for name in sys.modules if name.startswith("hermes_")})
    json.dump({"reward": outcome.reward, "imported": imported}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
