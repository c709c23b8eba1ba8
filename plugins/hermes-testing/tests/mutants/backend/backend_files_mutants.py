"""Real local sandboxes with one behaviour of files changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from backend_wrapping import Local, Passing

from hermes_testing.suites.backend.files import Files


class _WritesText(Passing):
    async def write_file(self, path, data, **options):
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        await self.inner.write_file(path, text, **options)


class TestWritesTextOnly(Local, Files):
    sandbox_class = _WritesText
    caught_by = frozenset({"test_a_large_file_is_read_and_written_whole", "test_bytes_make_the_round_trip"})


class _MissingIsEmpty(Passing):
    async def read_file(self, path, **options):
        try:
            return await self.inner.read_file(path, **options)
        except FileNotFoundError:
            if path.startswith(("/", "link/")):  # some machines lack these files, others do not
                raise
            return b""


class TestReadsMissingFilesAsEmpty(Local, Files):
    sandbox_class = _MissingIsEmpty
    caught_by = frozenset({"test_a_missing_file_is_FileNotFoundError"})


class _CutsPaths(Passing):
    async def stat(self, path):
        return await self.inner.stat(path.partition("\0")[0].partition("\ud800")[0])


class TestCutsAPathAtACharacter(Local, Files):
    sandbox_class = _CutsPaths
    caught_by = frozenset({"test_a_path_that_none_can_have_is_refused"})


class _HasNoTimes(Passing):
    async def stat(self, path):
        return replace(await self.inner.stat(path), mtime=0.0)


class TestStatHasNoTimes(Local, Files):
    sandbox_class = _HasNoTimes
    caught_by = frozenset({"test_a_listing_describes_as_stat_does", "test_a_time_is_in_seconds_since_the_epoch"})


class _CountsMilliseconds(Passing):
    async def stat(self, path):
        found = await self.inner.stat(path)
        return replace(found, mtime=found.mtime * 1000)

    async def list_dir(self, path="."):
        return [replace(entry, mtime=entry.mtime * 1000) for entry in await self.inner.list_dir(path)]


class TestCountsTimeInMilliseconds(Local, Files):
    sandbox_class = _CountsMilliseconds
    caught_by = frozenset({"test_a_time_is_in_seconds_since_the_epoch"})


class _ListsNames(Passing):
    async def list_dir(self, path="."):
        return [replace(entry, size=0, mode=0) for entry in await self.inner.list_dir(path)]


class TestListsNamesAndKindsOnly(Local, Files):
    sandbox_class = _ListsNames
    caught_by = frozenset({"test_a_listing_describes_as_stat_does"})


class _NamesWhatItFound(Passing):
    async def stat(self, path):
        found = await self.inner.stat(path)
        return replace(found, path=f"{self.inner.workspace}/{path}")


class TestStatNamesAnotherPath(Local, Files):
    sandbox_class = _NamesWhatItFound
    caught_by = frozenset({"test_a_listing_describes_as_stat_does", "test_stat_describes_what_a_path_points_to"})


class _HasItsOwnPaths(Passing):
    async def read_file(self, path, **options):
        if ".." in path or path.startswith("/"):
            raise PermissionError(13, "path outside workspace", path)
        return await self.inner.read_file(path, **options)


class TestKnowsOtherPathsThanCommands(Local, Files):
    """A defect of hermes-agent: file calls and commands disagreed about paths."""

    sandbox_class = _HasItsOwnPaths
    caught_by = frozenset(
        {
            "test_links_and_dots_lead_where_they_lead_a_command",
            "test_relative_paths_mean_the_workspace_always",
        }
    )


class _TakesTurns(Passing):
    def __init__(self, inner):
        super().__init__(inner)
        self.turn = asyncio.Lock()

    async def exec(self, command, **options):
        async with self.turn:
            return await self.inner.exec(command, **options)

    async def stat(self, path):
        async with self.turn:
            return await self.inner.stat(path)


class TestFileCallsWaitForCommands(Local, Files):
    sandbox_class = _TakesTurns
    caught_by = frozenset({"test_file_calls_do_not_wait_for_a_command"})
