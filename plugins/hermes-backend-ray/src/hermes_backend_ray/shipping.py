"""The actor's class, so made that Ray sends its code and not its name."""

from __future__ import annotations

from importlib import resources
from typing import Any

_NAME = "hermes_node_actor"


def actor_class() -> Any:
    """Return the class of the actor, by value.

    What is pickled goes by its module's name where that can be imported, and the nodes would need this package. A
    module that is in nobody's table goes with its code.
    """
    source = (resources.files("hermes_backend_ray") / "node_actor.py").read_text(encoding="utf-8")
    space: dict[str, Any] = {"__name__": _NAME}
    exec(compile(source, f"<{_NAME}>", "exec"), space)  # noqa: S102 - this package's own file
    return space["NodeActor"]
