"""A program: `PuzzleEnv` from the command line, which kills itself with SIGKILL at a moment named in KILL_AT.

`model:3` is within the third request to the model; `data:2:half` within the second line of the file of groups, `before`
and `after` beside it; `progress` is the file beside that one. Every request is noted in the file that ASKED names.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from atropos_envs import PuzzleEnv, TokenDouble, config, says, server

from hermes_core.contracts.errors import ModelServerError

FAILING = "2+2?"
MOMENT = os.environ.get("KILL_AT", "")
seen = Counter()
write = os.write


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def watched_write(fd, data):
    path = str(Path(f"/proc/self/fd/{fd}").readlink())
    name = "progress" if path.endswith(".progress") else "data" if path.endswith(".jsonl") else ""
    seen[name] += 1
    if f"{name}:{seen[name]}:before" == MOMENT:
        die()
    if f"{name}:{seen[name]}:half" == MOMENT:
        write(fd, bytes(data)[: len(data) // 2])
        die()
    written = write(fd, data)
    if f"{name}:{seen[name]}:after" == MOMENT:
        die()
    return written


def answer(request):
    question = request.conversation.messages[0]["content"]
    with Path(os.environ["ASKED"]).open("a") as file:
        file.write(f"{question}\n")
    seen["model"] += 1
    if f"model:{seen['model']}" == MOMENT:
        die()
    if question == FAILING:
        return ModelServerError("502")
    return says(str(2 * int(question.partition("+")[0])))


class KillableEnv(PuzzleEnv):
    """Every group but one is scored."""

    model = TokenDouble(answer)

    @classmethod
    def config_init(cls):
        return config(total_steps=5, max_concurrent_groups=2, include_messages=True), [server()]


if __name__ == "__main__":
    os.write = watched_write
    KillableEnv.cli()
