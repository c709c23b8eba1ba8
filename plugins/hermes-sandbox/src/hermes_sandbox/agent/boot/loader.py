"""The few lines with which a Python is started: they wait for the agent's modules on standard input."""

from __future__ import annotations

# Reads three fields (the lengths of the byte code and of the texts as 8 hexadecimal digits each, and for which Python
# the byte code is), the byte code and the texts from descriptor 0, byte-exact, so that the following frames are left
# to the agent. Both are a dictionary of all modules by name; a Python of another version uses the texts. Each code is
# marshalled by itself, so that only those are read that are imported.
_RECEIVE = """
import gc, marshal, os, sys
gc.disable()
import _frozen_importlib_external as boot
def take(size):
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = os.readv(0, (view,))
        if not count:
            raise SystemExit(3)
        view = view[count:]
    return data
size, length = int(take(8), 16), int(take(8), 16)
same = take(32).decode().split() == [sys.implementation.cache_tag, boot.MAGIC_NUMBER.hex()]
code, texts = take(size), take(length)
sent = marshal.loads(code if same else texts)
del code, texts
own = {"__name__": "hermes_sandbox.agent.boot.importer"}
code = sent[own["__name__"]]
exec(compile(code, "<hermes-agent boot/importer.py>", "exec") if isinstance(code, str) else marshal.loads(code), own)
del code
own["install_importer"](sent)
"""
LOADER = _RECEIVE + "from hermes_sandbox.agent.server import main\nmain()\n"
ZYGOTE_LOADER = _RECEIVE + "from hermes_sandbox.agent.boot.zygote import main\nmain()\n"
