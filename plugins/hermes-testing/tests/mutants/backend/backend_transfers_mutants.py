"""Real copies with one behaviour changed; `caught_by` names the tests that must fail."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from backend_wrapping import Local, Passing

from hermes_testing.suites.backend.transfers import Transfers


class _FollowsLinks(Passing):
    async def upload(self, source, path):
        if not source.is_dir():
            return await self.inner.upload(source, path)
        with tempfile.TemporaryDirectory() as folder:
            copied = shutil.copytree(
                source, Path(folder, "copy"), ignore=shutil.ignore_patterns("pipe"), ignore_dangling_symlinks=True
            )
            sent = await self.inner.upload(copied, path)
        pipe = (("pipe", "not a file"),) if (source / "pipe").exists() else ()
        return replace(sent, omitted=pipe)


class TestUploadFollowsLinks(Local, Transfers):
    sandbox_class = _FollowsLinks
    caught_by = frozenset({"test_a_directory_comes_back_as_it_was", "test_an_upload_follows_no_link"})


class _HashesTheBeginning(Passing):
    async def download(self, path, target, **limits):
        done = await self.inner.download(path, target, **limits)
        return (
            replace(done, sha256=hashlib.sha256(target.read_bytes()[:1000]).hexdigest()) if target.is_file() else done
        )


class TestHashesWhatFitsIntoALimit(Local, Transfers):
    """A defect of hermes-agent: limits of artifacts applied silently."""

    sandbox_class = _HashesTheBeginning
    caught_by = frozenset({"test_a_file_is_copied_both_ways"})


class _TellsNothing(Passing):
    async def archive(self, paths, target, **limits):
        return replace(await self.inner.archive(paths, target, **limits), omitted=())


class TestAnArchiveTellsNoOmission(Local, Transfers):
    """A defect of hermes-agent: limits of artifacts applied silently."""

    sandbox_class = _TellsNothing
    caught_by = frozenset(
        {
            "test_a_missing_path_of_an_archive_is_an_omission",
            "test_what_a_limit_keeps_out_of_an_archive_is_listed",
            "test_what_cannot_be_copied_is_told",
        }
    )


class _CountsOneLess(Passing):
    async def archive(self, paths, target, *, max_entries=None, **limits):
        return await self.inner.archive(paths, target, max_entries=max_entries and max_entries - 1, **limits)


class TestALimitIsOneLess(Local, Transfers):
    sandbox_class = _CountsOneLess
    caught_by = frozenset(
        {"test_limits_that_are_just_kept_omit_nothing", "test_what_a_limit_keeps_out_of_an_archive_is_listed"}
    )


class _TakesAsMuchAsComes(Passing):
    async def download(self, path, target, *, max_bytes=None):
        return await self.inner.download(path, target)


class TestADownloadHasNoLimit(Local, Transfers):
    sandbox_class = _TakesAsMuchAsComes
    caught_by = frozenset({"test_a_download_takes_no_more_than_it_may"})


class _WritesThroughLinks(Passing):
    async def download(self, path, target, **limits):
        return await self.inner.download(path, target.resolve(), **limits)


class TestADownloadFollowsALinkAtItsTarget(Local, Transfers):
    sandbox_class = _WritesThroughLinks
    caught_by = frozenset({"test_a_link_at_the_target_is_replaced"})


class _ForgetsModes(Passing):
    async def download(self, path, target, **limits):
        done = await self.inner.download(path, target, **limits)
        for file in target.rglob("*"):
            if file.is_file() and not file.is_symlink():
                file.chmod(0o644)
        return done


class TestForgetsModes(Local, Transfers):
    sandbox_class = _ForgetsModes
    caught_by = frozenset({"test_a_directory_comes_back_as_it_was"})


class _LeavesParts(Passing):
    async def download(self, path, target, **limits):
        part = target.with_name(f"{target.name}.part")
        if target.parent.exists():
            part.touch()
        done = await self.inner.download(path, target, **limits)
        part.unlink(missing_ok=True)
        return done


class TestLeavesPartsOfACancelledCopy(Local, Transfers):
    sandbox_class = _LeavesParts
    caught_by = frozenset(
        {"test_a_cancelled_copy_leaves_no_part", "test_copying_what_is_not_there_is_FileNotFoundError"}
    )


class _FillsHoles(Passing):
    async def upload(self, source, path):
        if not source.is_file():
            return await self.inner.upload(source, path)
        await self.inner.write_file(path, source.read_bytes())
        return await self.inner.upload(source, path) if source.stat().st_size < 1 << 26 else None


class TestFillsHoles(Local, Transfers):
    sandbox_class = _FillsHoles
    caught_by = frozenset({"test_holes_in_files_are_kept"})


class _MakesRoom(Passing):
    async def upload(self, source, path):
        if source.is_file():
            await self.inner.exec('rm -rf -- "$NAME"', env={"NAME": path})
        return await self.inner.upload(source, path)


class TestAFileReplacesADirectory(Local, Transfers):
    sandbox_class = _MakesRoom
    caught_by = frozenset({"test_a_cancelled_copy_leaves_no_part", "test_a_file_does_not_replace_a_directory"})
