from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def registry():
    """The core's plugin and this one, without other installed plugins."""
    from hermes_core.discovery import PluginSettings, load_plugins

    return load_plugins(
        PluginSettings(
            allow=(
                "hermes-sandbox",
                "hermes-tools",
                "hermes-models",
                "hermes-runner",
                "hermes-verifiers",
            ),
            strict=True,
        ),
        environ={},
    )


@pytest.fixture
def judge_commands(registry):
    """Run commands in a real sandbox and judge the result: `await judge_commands(name, options, *commands, …)`."""
    from hermes_core.contracts.task import Step, Task, TaskFile
    from hermes_core.rollout import GroupPlan, RolloutSpec, Runtime, run_rollout
    from hermes_core.specs import Ref
    from hermes_core.tooling import select_tools
    from hermes_models import OracleModel

    async def run_commands(name, options, *commands, files=(), answer="done"):
        task = Task(
            id="t",
            messages=({"role": "user", "content": "go"},),
            files=tuple(TaskFile(path=path, data=text.encode()) for path, text in dict(files).items()),
            verifier=Ref(kind="verifier", name=name, options=options),
            solution=tuple(Step(tool="terminal", arguments={"command": command}) for command in commands),
            answer=answer,
        )
        group = GroupPlan(group_id="g", task=task, tools=select_tools(registry))
        model = OracleModel([task], mistake_rate=0)
        async with Runtime(registry) as runtime:
            return await run_rollout(RolloutSpec(rollout_id="r", group=group), runtime, model)

    return run_commands
