"""The plugin of the broken verifiers, and the verifiers."""

from __future__ import annotations

import random
from dataclasses import replace

from reference.plugin import verifier
from reference.verifiers import Equals

from hermes_core.contracts.verifier import Score
from hermes_core.hookspecs import hookimpl


@hookimpl
def hermes_verifiers():
    def own(name, target):
        return replace(verifier(name, "Equals"), target=f"broken_verifiers:{target}")

    return [
        verifier("equals", "Equals"),
        verifier("equals_async", "EqualsAsync"),
        own("nan", "NotANumber"),
        own("percent", "Percent"),
        own("dice", "Dice"),
        own("mutates", "Mutates"),
        own("believes", "Believes"),
        own("generous", "Generous"),
        own("last_turn", "LastTurn"),
        own("remembers", "Remembers"),
        own("bad_part", "BadPart"),
        own("stingy", "Stingy"),
        own("old_reward", "OldReward"),
        own("gullible", "Gullible"),
        own("login_shell", "LoginShell"),
        own("leaves_process", "LeavesProcess"),
        own("leaves_key", "LeavesKey"),
        own("other_inputs", "OtherInputs"),
        replace(own("protects_nothing", "Protects"), needs_sandbox=False),
    ]


class NotANumber(Equals):
    def compare(self, text, result):
        return Score(value=float("nan"))


class Percent(Equals):
    def compare(self, text, result):
        return Score(value=100.0)


class Dice(Equals):
    def compare(self, text, result):
        return Score(value=1.0, parts={"luck": random.random()})


class Mutates(Equals):
    def compare(self, text, result):
        result.metadata["judged"] = True
        return super().compare(text, result)


class Believes(Equals):
    def score(self, result, context):
        if "solved the task" in result.final_response:
            return Score(value=1.0)
        return super().score(result, context)


class Generous(Equals):
    def score(self, result, context):
        return Score(value=1.0)


class LastTurn(Equals):
    def score(self, result, context):
        result.messages[-1]["content"].strip()
        return super().score(result, context)


class Remembers(Equals):
    solved = False

    def score(self, result, context):
        found = super().score(result, context)
        self.solved = self.solved or found.value == 1.0
        return Score(value=0.5) if self.solved and found.value == 0.0 else found


class BadPart(Equals):
    def compare(self, text, result):
        return replace(super().compare(text, result), parts={"ratio": float("inf")})


class Stingy(Equals):
    def compare(self, text, result):
        return Score(value=0.9)


class OldReward(Equals):
    def score(self, result, context):
        if context.exists("reward.txt"):
            return Score(value=float(context.read_text("reward.txt")))
        return super().score(result, context)


class Gullible:
    async def score(self, result, context):
        check = 'python3 -c \'import json, sys; sys.exit(open("answer.txt").read() != "42")\''
        return Score(value=float((await context.terminal(check))["exit_code"] == 0))


class LoginShell:
    async def score(self, result, context):
        answer = await context.terminal("bash -lc 'exec cat answer.txt'")
        return Score(value=float(answer["output"] == "42"))


class LeavesProcess(Equals):
    def score(self, result, context):
        context.terminal("(setsid sleep 600 > /dev/null 2>&1 &)")
        return super().score(result, context)


class LeavesKey(Equals):
    def score(self, result, context):
        context.write_bytes("expected.txt", b"42")
        return super().score(result, context)


class OtherInputs(Equals):
    def inputs(self):
        return [f"/nowhere/{random.random()}"]


class Protects(Equals):
    def protected_paths(self):
        return ["tests"]
