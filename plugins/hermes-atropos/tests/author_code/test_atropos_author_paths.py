"""Relative paths of a ToolContext's file methods mean the same as in a command of the session."""

from __future__ import annotations

import pytest

pytest.importorskip("atroposlib", reason="hermes-atropos is not installed")

from atropos_envs import ChatDouble, PuzzleEnv, calls, environment, says
from author_styles import STYLES, run_author_code

from hermes_atropos import ToolContext

SESSIONS = ("robust", "live")
PLACES = ("sub", "a b/-c d", "-dash", "deep/er/still", ".", "sub/../sub")
NAMES = ("x", "with space", "-n", "up/b", "./x", "../x", "ü/$HOME")


def quote(path):
    return f"'{path}'"


async def in_session(do, command):
    answer = await do("terminal", command)
    assert answer["exit_code"] == 0, answer
    return answer["output"]


@pytest.fixture
def local(tmp_path):
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "b.txt").write_text("b")
    (tmp_path / "a.txt").write_text("from here")
    return tmp_path


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("place", PLACES)
async def test_every_file_method_agrees_with_commands_after_cd(session, place, local):
    async def use(do):
        await in_session(do, f"mkdir -p sub {quote('./' + place)} && cd -- {quote(place)}")
        for name in NAMES:
            await in_session(do, f"mkdir -p -- \"$(dirname -- './{name}')\"")
            assert (await do("upload_file", str(local / "a.txt"), name))["exit_code"] == 0
            assert await in_session(do, f"cat {quote('./' + name)}") == "from here"
            await in_session(do, f"printf changed > {quote('./' + name)}")
            assert "changed" in (await do("read_file", name))["content"]
            assert (await do("download_file", name, str(local / "down")))["success"] is True
            assert (local / "down").read_text() == "changed"
            assert "error" not in await do("write_file", name, "written")
            assert await in_session(do, f"cat {quote('./' + name)}") == "written"
            found = await do("search", "written", path=name)
            assert [match["content"] for match in found["matches"]] == ["written"]
            await in_session(do, f"rm {quote('./' + name)}")
        return "done"

    assert await run_author_code(use, "called", sandbox={"session": session}) == "done"


@pytest.mark.parametrize("session", SESSIONS)
async def test_whole_directories_go_where_the_session_is(session, local):
    async def use(do):
        await in_session(do, "mkdir -p 'a b' && cd 'a b'")
        answers = [await do("upload_dir", str(local / "tree"), "up here")]
        assert await in_session(do, "cat 'up here/deep/b.txt'") == "b"
        answers.append(await do("download_dir", "up here", str(local / "down")))
        answers.append(await do("download_dir", ".", str(local / "all")))
        found = await do("search", "b")
        assert [match["path"].endswith("a b/up here/deep/b.txt") for match in found["matches"]] == [True]
        return answers

    up, down, everything = await run_author_code(use, "called", sandbox={"session": session})
    assert [answer["exit_code"] for answer in up] == [0]
    assert [answer["success"] for answer in [*down, *everything]] == [True, True]
    assert (local / "down" / "deep" / "b.txt").read_text() == "b"
    assert (local / "all" / "up here" / "deep" / "b.txt").read_text() == "b"


@pytest.mark.parametrize("style", [style for style in STYLES if style != "called"])
async def test_the_raw_file_methods_agree_too(style):
    async def use(do):
        await in_session(do, "mkdir sub && cd sub")
        await do("write_bytes", "x", b"raw")
        assert await in_session(do, "cat x") == "raw"
        return [
            await do("read_bytes", "x"),
            await do("read_text", path="x"),
            await do("exists", "x"),
            await do("exists", "sub/x"),
            (await do("stat", "x")).size,
            [entry.path for entry in await do("list_dir")],
        ]

    assert await run_author_code(use, style) == [b"raw", "raw", True, False, 3, ["x"]]


@pytest.mark.parametrize("session", SESSIONS)
async def test_absolute_paths_and_those_in_the_home_stay_what_they_are(session, local):
    async def use(do):
        await in_session(do, "mkdir sub && cd sub")
        place = (await in_session(do, "cd .. && pwd && cd sub")).strip()
        await do("upload_file", str(local / "a.txt"), f"{place}/x")
        await do("upload_file", str(local / "a.txt"), "~/home-x")
        return await in_session(do, "cat ../x ~/home-x; rm ~/home-x")

    assert await run_author_code(use, "called", sandbox={"session": session}) == "from herefrom here"


async def test_in_a_robust_session_with_a_removed_directory_paths_start_where_commands_do(local):
    async def use(do):
        await in_session(do, "mkdir gone && cd gone && rmdir ../gone")
        await do("upload_file", str(local / "a.txt"), "x")
        return await in_session(do, "cat x")

    assert await run_author_code(use, "called") == "from here"


@pytest.mark.parametrize("style", ["awaited", "ordinary"])
async def test_in_a_live_session_with_a_removed_directory_the_methods_raise(style, local):
    async def use(do):
        await do("terminal", "mkdir gone && cd gone && rmdir ../gone")
        answers = [
            await do("read_file", "x"),
            await do("write_file", "x", "y"),
            await do("search", "y"),
            await do("upload_file", str(local / "a.txt"), "x"),
            *await do("upload_dir", str(local / "tree"), "x"),
            await do("download_file", "x", str(local / "x")),
            *await do("download_dir", "x", str(local / "x")),
        ]
        assert await do("exists", "x") is False
        with pytest.raises(FileNotFoundError, match="it was removed"):
            await do("write_bytes", "x", b"y")
        await do("terminal", "cd ..")
        assert await do("exists", "gone") is False, "nothing has made the directory anew"
        return answers

    answers = await run_author_code(use, style, sandbox={"session": "live"})
    assert all("it was removed" in answer.get("error", answer.get("output")) for answer in answers)
    assert [answer["exit_code"] for answer in answers if "exit_code" in answer] == [-1, -1]
    assert [answer["success"] for answer in answers if "success" in answer] == [False, False]


SHADOWING = {
    "functions": "pwd() { echo /etc; }; command() { echo /etc; }",
    "unset": "unset() { :; }; pwd() { echo /etc; }",
    "exported": "pwd() { echo /etc; }; command() { echo /etc; }; export -f pwd command",
    "aliases": "shopt -s expand_aliases; alias pwd='echo /etc' unset=: command=:",
    "options": "set -u; set -f; set -o noclobber",
}


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("shadowing", SHADOWING.values(), ids=SHADOWING)
async def test_a_session_that_redefines_commands_does_not_lead_elsewhere(session, shadowing):
    async def use(do):
        await do("terminal", f"mkdir sub && cd sub && touch mine; {shadowing}")
        return [await do("exists", "mine"), await do("exists", "passwd")]

    assert await run_author_code(use, "awaited", sandbox={"session": session}) == [True, False]


@pytest.mark.parametrize("call", [("terminal", "true"), ("call_tool", "terminal", {"command": "true"})])
async def test_a_context_that_ran_no_command_does_not_use_the_session(call):
    """It may be busy, or the model's: paths begin in the workspace, as they do for the model's own tools."""

    class Moving(PuzzleEnv):
        async def evaluate(self, *args, **kwargs):
            context = await self.server.own.context("t")
            await context.terminal("mkdir sub && cd sub && touch mine")
            self.seen = [await ToolContext("t").exists("mine")]
            getattr(ToolContext("t"), call[0])(*call[1:])
            self.seen.append(await ToolContext("t").exists("mine"))

    env = environment(ChatDouble(), kind=Moving)
    await env._run_evaluate()
    await env.aclose()
    assert env.seen == [False, True]


@pytest.mark.parametrize("session", SESSIONS)
async def test_a_reward_starts_in_the_workspace_for_every_last_directory_of_the_model(session):
    class Looking(PuzzleEnv):
        reward_needs_sandbox = True

        async def compute_reward(self, item, result, ctx):
            before = await ctx.exists("sub"), await ctx.exists("mine")
            ctx.terminal("true")
            self.seen = [before, (await ctx.exists("sub"), await ctx.exists("mine"))]
            return 1.0

    answers = [calls("terminal", '{"command": "mkdir sub && cd sub && touch mine"}'), says("done")]
    env = environment(
        ChatDouble(lambda _: answers.pop(0)), kind=Looking, sandbox={"session": session}, enabled_toolsets=["terminal"]
    )
    await env.setup()
    assert (await env.run_item(await env.get_next_item())).reward == 1.0
    await env.aclose()
    assert env.seen == [(True, False), (True, False)]


async def test_a_models_tools_still_begin_in_the_workspace():
    """As in their descriptions; `call_tool` calls them as the model does."""

    async def use(do):
        await in_session(do, "echo above > x && mkdir sub && cd sub && echo below > x")
        return [await do("call_tool", "read_file", {"path": "x"}), (await do("read_file", "x"))["content"]]

    called, answered = await run_author_code(use, "called")
    assert "above" in called
    assert "below" in answered
