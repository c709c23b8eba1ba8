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
