"""At token level, workers return what the server sampled, by the server's own log; the key stays in memory.

The server, its tokenizer and the check are the core's own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ray_runs import Runs

from hermes_tokens import ChatTokenizer, Exchange, check_exactness

CALL = '<tool_call>\n{"name": "terminal", "arguments": {"command": "echo done > done.txt"}}\n</tool_call>'
KEY = "sk-a-key-that-must-not-be-written-0451"


class Solver:
    """Calls the tool in its first turn, in token ids that no tokenizer would choose, and then answers."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = ChatTokenizer.load(folder)
        self._start = self._tokenizer.encode_scaffold("<|im_start|>assistant")

    def __call__(self, prompt, _sampling):
        from token_server import Sampled

        turn = sum(prompt[at : at + len(self._start)] == self._start for at in range(len(prompt)))
        parts = [CALL[:20], CALL[20:31], CALL[31:], "<|im_end|>"] if turn == 1 else ["Done.", "<|im_end|>"]
        ids = [token for part in parts for token in self._tokenizer.encode_scaffold(part)]
        logprobs = [-(1 + place % 7) / 16 - 2**-40 for place in range(len(ids))]
        return Sampled(ids=ids, logprobs=logprobs, stop_id=ids[-1])


def session_files() -> list[Path]:
    """List the files that the cluster has written: logs, and spilled objects."""
    import ray

    node = ray._private.worker._global_node
    assert node is not None
    return [path for path in Path(node.get_session_dir_path()).rglob("*") if path.is_file()]


@pytest.fixture
def ray_connection(ray_cluster):
    """A connection that outlives the run, to inspect the cluster afterwards."""
    import ray

    was_connected = ray.is_initialized()
    if not was_connected:
        ray.init(address=ray_cluster.address, log_to_driver=False, logging_level="ERROR")
    yield
    if not was_connected:
        ray.shutdown()


@pytest.mark.usefixtures("ray_connection")
async def test_samples_are_exact_by_the_servers_own_log_and_the_key_is_written_nowhere(
    ray_cluster, tmp_path, monkeypatch
):
    from chatml_folder import chatml_folder
    from token_server import TokenServer, serving_tokens

    runs = Runs(tmp_path, ray_cluster.address)
    runs.gate.touch()
    folder = chatml_folder(tmp_path / "tokenizer")
    monkeypatch.chdir(tmp_path)
    async with serving_tokens(TokenServer("vllm", Solver(folder), log=tmp_path / "wire.jsonl")) as server:
        result = await runs.run(
            runs.gated(3),
            api_key=KEY,
            model=server.url,
            model_name="m",
            model_protocol="vllm",
            tokenizer=folder.name,  # relative, because the workers have another working directory
            require_exact=True,
            options={"workers": 2},
        )
        outcomes = runs.lines()
        assert [outcome["reward"] for outcome in outcomes] == [1.0] * 3
        for outcome in outcomes:
            exchanges = [Exchange.of_line(line) for line in server.lines if line["rollout_id"] == outcome["rollout_id"]]
            assert len(exchanges) == 2
            assert check_exactness(exchanges, outcome["samples"]).is_exact
    assert result.summary["exactness"]["sampled_trained_share"] == 1.0
    assert KEY not in json.dumps(result.summary)
    assert [path for path in session_files() if KEY.encode() in path.read_bytes()] == []
