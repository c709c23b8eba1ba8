"""Requests from the client, dispatched to the slots."""

from __future__ import annotations

import gc
import os
import sys
import time

from hermes_sandbox.agent.basics.stdlib import TYPE_CHECKING, signal, suppress
from hermes_sandbox.agent.commands.session import COMMAND_FD
from hermes_sandbox.agent.launch import OOM_SCORE
from hermes_sandbox.agent.loop import Loop
from hermes_sandbox.agent.operations import Operations
from hermes_sandbox.agent.processes import become_reaper, kill_descendants, take_name
from hermes_sandbox.agent.seccomp import confine_sockets, shield
from hermes_sandbox.agent.slot import USUAL_UMASK, Slot
from hermes_sandbox.agent.slot_lifecycle import (
    begin,
    bind_slot,
    configure,
    end,
    install,
    may_change_user,
    start_again,
)
from hermes_sandbox.agent.sweeping.sweeper import Sweeper
from hermes_sandbox.agent.wire import PROTOCOL, Decoder, FrameError, encode_head

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

_READ_SIZE = 1 << 18
_LAST_SECONDS = 5.0
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ignored signals: the first process of a PID namespace gets only signals that it handles from inside."""


class Answer:
    """Answers one request, once."""

    def __init__(self, server: Server, slot: Slot, number: int) -> None:
        self._server = server
        self._slot = slot
        self._number = number

    def __call__(self, values: dict[str, Any], body: bytes = b"") -> None:
        """Send the answer."""
        if self._server.end_wait(self._slot, self._number):
            self._server.answer(self._number, values, body)

    def fail(self, error: Exception) -> None:
        """Send an error instead."""
        if self._server.end_wait(self._slot, self._number):
            self._server.fail(self._number, error)


class Server:
    """One client's requests, for any number of slots."""

    def __init__(self, source: int, sink: int, *, shielded: bool) -> None:
        self.loop = Loop(source, sink)
        self._operations = Operations()
        self._shielded = shielded
        self._decoder = Decoder()
        self._marker = ""
        self._ground = Slot(self.loop, 0, "", {})
        self._slots: dict[int, Slot] = {0: self._ground}
        self._ending: dict[Slot, list[Callable[[OSError | None], None]]] = {}
        """Slots that are being closed, and the requests to answer then."""
        self._sweeper = Sweeper(self.loop)
        self._uploads: dict[int, tuple[Slot, Any]] = {}
        self._waits: dict[int, tuple[Slot, Callable[[], None] | None]] = {}
        self._streams: dict[int, Slot] = {}
        self.loop.watch(source, self._receive)

    def end_all(self) -> bool:
        """Kill everything it has started, and delete its files; True if nothing is left."""
        for slot in (*self._slots.values(), *self._ending):
            if slot.bound is not None:
                slot.bound.forbid()
        clean = kill_descendants(os.getpid(), _LAST_SECONDS)
        self._leave()
        return clean

    def _leave(self) -> None:
        for slot, upload in self._uploads.values():
            with slot.acting():
                upload.abort()
        for slot in (*self._slots.values(), *self._ending):
            slot.restart()
            slot.unbind()

    def _receive(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ_SIZE)
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
        own = getattr(self, "_do_" + operation, None)
        try:
            if own is not None:
                own(number, header, body)
                return
            slot = self._slots.get(header.get("slot", 0))
            if slot is None:
                self._report_loss(number, f"slot {header['slot']} is not open")
            else:
                slot.used = time.monotonic()
                self._serve(slot, number, header, body)
        except Exception as error:  # noqa: BLE001 - one slot's trouble must not end the others
            self.fail(number, error)

    def _serve(self, slot: Slot, number: int, header: dict[str, Any], body: bytes) -> None:
        operation, known = header["op"], self._operations
        known.load(operation)
        if operation in known.calls:
            with slot.acting():
                values = known.calls[operation](slot, header, body)
            self.answer(number, values)
        elif operation in known.streams:
            self._streams[number] = slot
            slot.requests += 1
            self.loop.produce(number, self._steps(slot, number, known.streams[operation](slot, header)))
        elif operation in known.waits:
            self._wait(slot, number, header, body)
        elif operation in known.uploads:
            with slot.acting():
                self._uploads[number] = (slot, known.uploads[operation](slot, header))
            slot.requests += 1
            self._do_data(number, header, body)
        else:
            raise ValueError(f"unknown operation {operation!r}")

    def _wait(self, slot: Slot, number: int, header: dict[str, Any], body: bytes) -> None:
        self._waits[number] = (slot, None)
        slot.requests += 1
        try:
            cancel = self._operations.waits[header["op"]](slot, header, body, Answer(self, slot, number))
        except BaseException:
            self.end_wait(slot, number)
            raise
        if number in self._waits:
            self._waits[number] = (slot, cancel)

    def end_wait(self, slot: Slot, number: int) -> bool:
        """Note the end of a request; False if it had ended before."""
        if self._waits.pop(number, None) is None:
            return False
        _rest(slot)
        return True

    def _steps(
        self, slot: Slot, number: int, answers: Iterator[tuple[dict[str, Any], bytes]]
    ) -> Generator[None, None, None]:
        try:
            while True:
                with slot.acting():
                    header, body = next(answers, (None, b""))
                if header is None:
                    break
                if header:
                    self.send({"id": number, **header}, body)
                yield
        except Exception as error:  # noqa: BLE001 - as above
            self.fail(number, error)
        finally:
            with slot.acting():
                answers.close()  # type: ignore[attr-defined]  # all of them are generators
            self._streams.pop(number, None)
            _rest(slot)

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        self.loop.send(encode_head(header, len(body)), body)

    def answer(self, number: int, values: dict[str, Any], body: bytes = b"") -> None:
        """Send an answer, unless the request expects none."""
        if number:
            self.send({"id": number, "ok": values}, body)

    def fail(self, number: int, error: Exception) -> None:
        """Send an error."""
        code = error.errno if isinstance(error, OSError) else None
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if not isinstance(error, (OSError, ValueError)):
            text = f"the agent failed: {error!r}"
        if number:
            self.send({"id": number, "error": {"errno": code, "text": text}})

    def _report_loss(self, number: int, reason: str) -> None:
        if number:
            self.send({"id": number, "error": {"errno": None, "text": reason, "lost": True}})

    def _do_hello(self, number: int, header: dict[str, Any], _body: bytes) -> None:
        configure(header["limits"])
        self._marker = header["marker"]
        take_name(self._marker)
        version = ".".join(str(part) for part in sys.version_info[:3])
        values = {"protocol": PROTOCOL, "pid": os.getpid(), "python": version, "uid": os.getuid()}
        values = {**values, "can_setuid": may_change_user(), "shielded": self._shielded}
        open_sockets = confine_sockets() if header.get("confine_sockets") else "not requested"
        self.answer(number, {**values, "open_sockets": open_sockets})

    def _do_ping(self, number: int, _header: dict[str, Any], _body: bytes) -> None:
        # Also if this answer is not awaited: the client only checks that something arrives.
        self.send({"id": number, "ok": {}})

    def _do_module(self, number: int, header: dict[str, Any], body: bytes) -> None:
        install(header["name"], body)
        self.answer(number, {})

    def _do_open(self, number: int, header: dict[str, Any], _body: bytes) -> None:
        if header["slot"] in self._slots:
            raise ValueError(f"slot {header['slot']} is open already")
        slot = Slot(self.loop, header["slot"], self._marker, header)
        bind_slot(slot, header)
        if slot.sweep is not None and slot.identity is not None:
            self._sweeper.expect(slot.identity.uid)
        try:
            begin(slot, header)
        except BaseException:
            slot.unbind()
            raise
        self._slots[slot.number] = slot
        self._count_sharers()
        if slot.lifetime is not None:
            self.loop.after(slot.lifetime, lambda: self._look_for_life(slot))
        self.answer(number, {"processes": None if slot.bound is None else slot.bound.how})

    def _count_sharers(self) -> None:
        shared = [slot for slot in self._slots.values() if slot.number and slot.identity is None]
        for slot in shared:
            slot.alone = len(shared) == 1

    def _look_for_life(self, slot: Slot) -> None:
        if self._slots.get(slot.number) is not slot or slot.lifetime is None:
            return
        if slot.busy():
            slot.used = time.monotonic()
        left = slot.used + slot.lifetime - time.monotonic()
        if left > 0:
            self.loop.after(left, lambda: self._look_for_life(slot))
        else:
            slot.tell("ended", {"reason": f"it was idle for {slot.lifetime:g} s"})
            self._end(slot)

    def _do_close(self, number: int, header: dict[str, Any], _body: bytes) -> None:
        slot = self._slots.get(header["slot"])

        def tell(error: OSError | None) -> None:
            self._answer_close(number, error)

        if slot is not None:
            self._end(slot, tell)
        elif waiting := [tells for each, tells in self._ending.items() if each.number == header["slot"]]:
            # Its lifetime had ended before.
            waiting[0].append(tell)
        else:
            tell(None)

    def _end(self, slot: Slot, *tells: Callable[[OSError | None], None]) -> None:
        self._withdraw_all(slot)
        del self._slots[slot.number]
        self._ending[slot] = [*tells]
        self._count_sharers()

        def sweep(error: OSError | None) -> None:
            if error is None and slot.sweep is not None and slot.identity is not None:
                self._sweeper.sweep(slot.identity.uid, slot.sweep, lambda: over(None))
            else:
                over(error)

        def over(error: OSError | None) -> None:
            for tell in self._ending.pop(slot):
                tell(error)

        end(slot, sweep)

    def _answer_close(self, number: int, error: OSError | None) -> None:
        if error is None:
            self.answer(number, {"left": self._sweeper.left})
        else:
            self.fail(number, error)

    def _do_reset(self, number: int, header: dict[str, Any], _body: bytes) -> None:
        slot = self._slots[header["slot"]]
        self._withdraw_all(slot)
        slot.restart()

        def begin_again(clean: bool) -> None:  # noqa: FBT001 - a callback
            slot.restart()  # again: until they were killed, its processes could have saved files
            if not clean:
                self.fail(number, OSError("processes of the slot cannot be killed"))
                return
            try:
                if slot.bound is not None:
                    slot.bound.allow()
                begin(slot, {**header, "own_directory": False})
            except OSError as error:
                self.fail(number, error)
            else:
                self.answer(number, {})

        slot.kill_all(begin_again)

    def _do_fork(self, number: int, header: dict[str, Any], _body: bytes) -> None:
        self._slots[header["slot"]].session.follow(self._slots[header["from"]].session)
        self.answer(number, {})

    def _do_restart(self, number: int, _header: dict[str, Any], _body: bytes) -> None:
        self.answer(number, {"clean": self.end_all()})
        self.loop.hand_over()
        start_again()

    def _withdraw_all(self, slot: Slot) -> None:
        kinds = (self._uploads.items(), self._waits.items())
        mine = [number for kind in kinds for number, entry in kind if entry[0] is slot]
        for number in mine + [number for number, owner in self._streams.items() if owner is slot]:
            self._do_cancel(0, {"target": number}, b"")

    def _do_data(self, number: int, header: dict[str, Any], body: bytes) -> None:
        slot, upload = self._uploads.get(number, (self._ground, None))
        if upload is None:
            return  # It has failed and was answered; these pieces were already in flight.
        try:
            with slot.acting():
                upload.add(body)
                values = upload.commit(header["sha256"]) if header["sha256"] is not None else None
            if values is not None:
                self._drop_upload(number)
                self.answer(number, values)
        except BaseException:
            self._drop_upload(number)
            with slot.acting():
                upload.abort()
            raise

    def _drop_upload(self, number: int) -> tuple[Slot, Any] | None:
        found = self._uploads.pop(number, None)
        if found is not None:
            _rest(found[0])
        return found

    def _do_cancel(self, _number: int, header: dict[str, Any], _body: bytes) -> None:
        target = header["target"]
        found = self._drop_upload(target)
        if found is not None:
            with found[0].acting():
                found[1].abort()
        if found is not None or self.loop.abandon(target):
            self.answer(target, {"cancelled": True})
        elif target in self._waits:
            cancel = self._waits[target][1]
            if cancel is not None:
                cancel()


def _rest(slot: Slot) -> None:
    slot.requests -= 1
    slot.used = time.monotonic()


def main() -> None:
    """Serve until the client is gone; then kill everything."""
    with suppress(OSError):
        os.setsid()
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    os.umask(USUAL_UMASK)
    os.closerange(3, 1024)
    if os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) != COMMAND_FD:
        raise RuntimeError("descriptors above the standard ones were inherited")
    OOM_SCORE.prepare()
    become_reaper()
    shielded = os.getpid() == 1 and shield()
    os.chdir("/")
    server = Server(0, 1, shielded=shielded)
    # The objects of the start stay. Scanning them for garbage that often cost a tenth of a short command.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()  # the loader has disabled it
    try:
        server.loop.run()
    finally:
        clean = server.end_all()
    # Nothing is left to be done, and Python would take a while to take itself apart.
    os._exit(0 if clean else 1)
