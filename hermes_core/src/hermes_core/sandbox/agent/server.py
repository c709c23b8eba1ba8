"""Requests from the client, dispatched to the session and to the files."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from hermes_core.sandbox.agent.files import OPERATIONS, Upload
from hermes_core.sandbox.agent.loop import Loop
from hermes_core.sandbox.agent.order import hang_bell
from hermes_core.sandbox.agent.processes import become_reaper, kill_descendants
from hermes_core.sandbox.agent.shell import COMMAND_FD, Command, Session
from hermes_core.sandbox.agent.wire import PROTOCOL, Decoder, FrameError, encode

_STREAM_READ = 1 << 18
_LAST_SECONDS = 5.0


class Server:
    """One client's requests. Commands run one after another; everything else is answered at once."""

    def __init__(self, source: int, sink: int) -> None:
        self.loop = Loop(source, sink)
        self._source = source
        self._bell = hang_bell()
        self._decoder = Decoder()
        self._session: Session | None = None
        self._marker = ""
        self._running: Command | None = None
        self._queue: list[Command] = []
        self._commands = 0
        self._uploads: dict[int, Upload] = {}
        self.loop.watch(source, self._receive)

    def leave(self) -> None:
        """Delete what the agent itself has put down."""
        for upload in self._uploads.values():
            upload.abort()
        if self._session is not None:
            self._session.forget()

    def _receive(self, fd: int) -> None:
        try:
            data = os.read(fd, _STREAM_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.loop.running = False
        try:
            for header, body in self._decoder.feed(data):
                self._dispatch(header, body)
        except FrameError as error:
            sys.stderr.write(f"hermes agent: {error}\n")
            self.loop.running = False

    def _dispatch(self, header: dict[str, Any], body: bytes) -> None:
        number, operation = header["id"], header["op"]
        try:
            if operation in OPERATIONS:
                answers = OPERATIONS[operation](self._path(header), header)
                self.loop.produce(number, self._steps(number, answers))
            else:
                getattr(self, "_do_" + operation)(number, header, body)
        except (OSError, ValueError) as error:
            self._fail(number, error)

    def _path(self, header: dict[str, Any]) -> Path:
        assert self._session is not None
        return Path(self._session.workspace, header["path"])

    def _steps(self, number: int, answers: Iterator[tuple[dict[str, Any], bytes]]) -> Generator[None, None, None]:
        try:
            for header, body in answers:
                if header:
                    self.loop.send(encode({"id": number, **header}, body))
                yield
        except (OSError, ValueError) as error:
            self._fail(number, error)

    def _answer(self, number: int, values: dict[str, Any], body: bytes = b"") -> None:
        self.loop.send(encode({"id": number, "ok": values}, body))

    def _fail(self, number: int, error: Exception) -> None:
        code = error.errno if isinstance(error, OSError) else None
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.loop.send(encode({"id": number, "error": {"errno": code, "text": text}}))

    def _do_hello(self, number: int, header: dict[str, Any], _body: bytes) -> None:
        for name, value in header["limits"].items():
            kind = {"core": resource.RLIMIT_CORE, "file_size": resource.RLIMIT_FSIZE}[name]
            resource.setrlimit(kind, (value, value))
        Path(header["workspace"]).mkdir(parents=True, exist_ok=True)
        self._marker = header["marker"]
        directory = header["state_dir"] or f"/tmp/hermes-{os.urandom(8).hex()}"  # noqa: S108 - its name is unguessable
        self._session = Session(header["bash"], header["workspace"], directory, header["env"])
        self._session.begin_in(header["cwd"])
        version = ".".join(str(part) for part in sys.version_info[:3])
        self._answer(number, {"protocol": PROTOCOL, "pid": os.getpid(), "python": version, "uid": os.getuid()})

    def _do_ping(self, number: int, _header: dict[str, Any], _body: bytes) -> None:
        self._answer(number, {})

    def _do_exec(self, number: int, header: dict[str, Any], body: bytes) -> None:
        assert self._session is not None
        self._commands += 1
        command = Command(self.loop, self._bell, self._session, header, body, marker=f"{self._marker}.{self._commands}")
        command.done = lambda values, output: self._finished(number, values, output)
        self._queue.append(command)
        self._start_next()

    def _start_next(self) -> None:
        while self._running is None and self._queue:
            command = self._running = self._queue.pop(0)
            try:
                command.start()
            except OSError as error:
                self._running = None
                self._fail(command.request["id"], error)
            if command.pid:
                self.loop.on_exit(command.pid, command.ended)

    def _finished(self, number: int, values: dict[str, Any], output: bytes) -> None:
        self._running = None
        self._answer(number, values, output)
        self._start_next()

    def _do_write(self, number: int, header: dict[str, Any], body: bytes) -> None:
        self._uploads[number] = Upload(self._path(header), header["mode"])
        self._do_data(number, header, body)

    def _do_data(self, number: int, header: dict[str, Any], body: bytes) -> None:
        upload = self._uploads.get(number)
        if upload is None:
            return  # It has failed and this has been told; the rest was already on its way.
        try:
            upload.add(body)
            if header["sha256"] is not None:
                upload.commit(header["sha256"])
                del self._uploads[number]
                self._answer(number, {})
        except OSError:
            self._uploads.pop(number, upload).abort()
            raise

    def _do_cancel(self, _number: int, header: dict[str, Any], _body: bytes) -> None:
        target = header["target"]
        upload = self._uploads.pop(target, None)
        if upload is not None:
            upload.abort()
        if upload is not None or self.loop.abandon(target):
            self._answer(target, {"cancelled": True})
        elif self._running is not None and self._running.request["id"] == target:
            self._running.stop("cancel")
        else:
            for command in [waiting for waiting in self._queue if waiting.request["id"] == target]:
                self._queue.remove(command)
                self._answer(target, {"cancelled": True})


def main() -> None:
    """Serve until the client has gone; then leave nothing alive."""
    with contextlib.suppress(OSError):
        os.setsid()
    os.umask(0o022)
    os.closerange(3, 1024)
    if os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) != COMMAND_FD:
        raise RuntimeError("descriptors above the standard ones were inherited")
    become_reaper()
    os.chdir("/")
    server = Server(0, 1)
    try:
        server.loop.run()
    finally:
        clean = kill_descendants(os.getpid(), _LAST_SECONDS)
        server.leave()
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
