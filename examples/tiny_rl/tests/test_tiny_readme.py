from __future__ import annotations

import json
from pathlib import Path

from tiny_rl.summary import table

FOLDER = Path(__file__).parents[1]


def test_the_readme_shows_the_committed_results():
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    assert table(results) in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [result["seed"] for result in results] == [0, 1, 2]
    assert all(result[name] for result in results for name in ("logprobs_agree", "reward_rose", "nothing_lost"))
