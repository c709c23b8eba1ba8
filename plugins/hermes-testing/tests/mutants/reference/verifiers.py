"""Verifiers that pass."""

from __future__ import annotations

from hermes_core.contracts.verifier import Score


class Equals:
    def score(self, result, context):
        try:
            text = context.read_text("answer.txt")
        except OSError:
            return Score(value=0.0, detail="no answer")
        return self.compare(text, result)

    def compare(self, text, result):
        value = 1.0 if text == "42" else 0.0
        return Score(value=value, parts={"equal": value})


class EqualsAsync:
    async def score(self, result, context):
        if not await context.exists("answer.txt"):
            return Score(value=0.0, detail="no answer")
        return Score(value=1.0 if await context.read_text("answer.txt") == "42" else 0.0)
