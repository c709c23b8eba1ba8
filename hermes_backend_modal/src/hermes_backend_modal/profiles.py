"""Named sets of options: hermes-agent's Modal profiles, from a YAML file and from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hermes_core.nearest import did_you_mean
from hermes_core.redaction import yaml_problem

_FILE: Final = "ATROPOS_MODAL_PROFILES_FILE"
_PREFIX: Final = "ATROPOS_MODAL_PROFILE_"


_HERMES_AGENTS: Final[Mapping[str, str]] = {
    "TERMINAL_MODAL_IMAGE": "image",
    "TERMINAL_CONTAINER_CPU": "cpu",
    "TERMINAL_CONTAINER_MEMORY": "memory",
    "TERMINAL_MODAL_POOL_MAX": "max_sandboxes",
}
_MODES: Final[Mapping[str, str]] = {"pool": "pool", "direct": "direct", "auto": "direct"}


def of_the_hermes_agent(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the options from hermes-agent's environment variables.

    Raises:
        ValueError: TERMINAL_MODAL_MODE has a mode that this backend does not support.
    """
    found = {option: environment[name] for name, option in _HERMES_AGENTS.items() if environment.get(name)}
    mode = environment.get("TERMINAL_MODAL_MODE")
    if not mode:
        return found
    if mode not in _MODES:
        raise ValueError(f"expected TERMINAL_MODAL_MODE to be one of {', '.join(_MODES)}, got {mode!r}")
    return {**found, "mode": _MODES[mode]}


def find_profile(name: str, file: str | Path | None, known: set[str]) -> dict[str, Any]:
    """Return the options of a profile; the environment's win over the file's.

    Raises:
        ValueError: The profile does not exist, or it has an option that is not in `known`.
    """
    path = file or os.environ.get(_FILE)
    from_file = _read(Path(path).expanduser()) if path else {}
    from_environment = _collect(os.environ, known)
    key = _variable_name(name)
    if name not in from_file and key not in from_environment:
        named = sorted({*from_file, *map(str.lower, from_environment)})
        how = f"set {_PREFIX}{key}_IMAGE=…, or name a file with it in profiles_file or {_FILE}"
        every = f"known: {', '.join(named)}; {how}" if named else how
        raise ValueError(f"there is no Modal profile {name!r}; {did_you_mean(name, named, otherwise=every, also=how)}")
    found = from_file.get(name, {})
    if not isinstance(found, Mapping):
        # pydantic does not accept TypeError from a validator.
        kind = type(found).__name__
        raise ValueError(f"{path}: expected a mapping of options for profile {name!r}, got {kind}")  # noqa: TRY004 - see above
    # hermes-agent's profiles contain their own name.
    options = {
        **{option: value for option, value in found.items() if option != "name"},
        **from_environment.get(key, {}),
    }
    for option in options:
        if option not in known:
            raise ValueError(f"profile {name!r} has the unknown option {option!r}; {_near(option, known)}")
    return options


def _read(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the Modal profiles in {path} cannot be read: {error.strerror}") from error
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"the Modal profiles in {path} are not valid YAML: {yaml_problem(error)}") from None
    profiles = content.get("profiles", content) if isinstance(content, Mapping) else None
    if not isinstance(profiles, Mapping):
        raise ValueError(f"expected {path} to map names of profiles to their options")  # noqa: TRY004 - as above
    return profiles


def _collect(environment: Mapping[str, str], known: set[str]) -> dict[str, dict[str, str]]:
    """Split ATROPOS_MODAL_PROFILE_<NAME>_<OPTION>; a name may have underscores, so the longest option matches."""
    options = sorted(known, key=len, reverse=True)
    found: dict[str, dict[str, str]] = {}
    for variable, value in environment.items():
        if not variable.startswith(_PREFIX):
            continue
        rest = variable.removeprefix(_PREFIX)
        option = next((option for option in options if rest.endswith(f"_{option.upper()}")), None)
        if option is None:
            raise ValueError(
                f"expected {variable} to end with an option of backend 'modal'; {_near(rest.lower(), known)}"
            )
        found.setdefault(rest[: -len(option) - 1], {})[option] = value
    return found


def _variable_name(name: str) -> str:
    return re.sub(r"\W", "_", name).upper()


def _near(word: str, known: set[str]) -> str:
    return did_you_mean(word, known, otherwise=f"known: {', '.join(sorted(known))}")
