"""Starting an agent inside its limits: what cannot be let in is ended whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.contracts.errors import BackendError
from hermes_sandbox.local.cgroups import Group
from hermes_sandbox.local.spawn import start_confined
from hermes_sandbox.protocol.agent_process import AgentProcess


async def test_an_agent_that_cannot_enter_its_group_is_ended_and_its_stream_closed(tmp_path, monkeypatch):
    started = []
    start = AgentProcess.start

    async def start_and_note(*args, **options):
        started.append(await start(*args, **options))
        return started[-1]

    monkeypatch.setattr(AgentProcess, "start", start_and_note)
    gone = Group([tmp_path / "gone"])
    with pytest.raises(BackendError, match="control group cannot be entered"):
        await start_confined(["/bin/cat"], group=gone, environment={}, bash="/bin/bash")
    assert started[0].stream.writer.transport.is_closing()
    assert not Path(f"/proc/{started[0].pid}").exists()
