"""Measure the start-up check of chat templates, over all templates in the installed `trl`."""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.tokens import conversations
from hermes_tokens import AppendRule, prove_template

SUPPORT = Path(__file__).parents[2] / "plugins" / "hermes-tokens" / "tests" / "support"


def measure(rounds: int = 2) -> dict[str, Any]:
    """Return the median and the worst CPU milliseconds of a proof, and of reading the template, which any use needs."""
    if str(SUPPORT) not in sys.path:
        sys.path.insert(0, str(SUPPORT))
    tokenizers = importlib.import_module("small_tokenizers")
    proofs: dict[str, float] = {}
    readings: dict[str, float] = {}
    for name in tokenizers.trl_templates():
        found = [_once(tokenizers.trl_tokenizer(name)) for _ in range(rounds)]
        readings[name], proofs[name] = (min(values) for values in zip(*found, strict=True))
    worst = max(proofs, key=proofs.__getitem__)
    return {
        "templates": len(proofs),
        "median_ms": statistics.median(proofs.values()),
        "worst_ms": proofs[worst],
        "worst": worst,
        "reading_median_ms": statistics.median(readings.values()),
        "reading_worst_ms": max(readings.values()),
    }


def _once(tokenizer: Any) -> tuple[float, float]:
    """Return the milliseconds of making a rule, which compiles the template, and of its proof."""
    began = time.process_time()
    rule = AppendRule(tokenizer, tools=conversations.TOOLS)
    made = time.process_time()
    prove_template(rule)
    return 1000 * (made - began), 1000 * (time.process_time() - made)
