"""Which plugins may load: one frozen value, built from the environment, the config and the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes_core.contracts.errors import ConfigError
from hermes_core.nearest import did_you_mean

_SWITCH: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("", "0", "false", "no", "off"), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """What a registry is built from; plain data, so every worker process can build the same one.

    `allow` admits only what it names (None admits all, empty admits none); `disable` wins over it. Names are those of
    a distribution, of an entry point, or both as `distribution:entry-point`. `extra` adds local plugins (a module's
    name or a path to a `.py` file) or admits an installed one by name. `prefer` settles conflicts:
    `{"backend:docker": "acme-docker"}`. With `strict` any plugin failure is an error.
    """

    allow: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    prefer: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> PluginSettings:
        """Read HERMES_PLUGINS, HERMES_PLUGINS_DISABLE (comma-separated names) and HERMES_PLUGINS_STRICT."""
        allow = environ.get("HERMES_PLUGINS")
        strict = environ.get("HERMES_PLUGINS_STRICT", "")
        if strict.strip().lower() not in _SWITCH:
            raise ConfigError(f"HERMES_PLUGINS_STRICT: expected 1 or 0, got {strict!r}", hint="write 1 or 0")
        return cls(
            allow=None if allow is None else _names(allow),
            disable=_names(environ.get("HERMES_PLUGINS_DISABLE", "")),
            strict=_SWITCH[strict.strip().lower()],
        )

    def with_options(self, options: Iterable[str]) -> PluginSettings:
        """Add the values of the command line's `-p`: a name, a module, a path, or `no:` and a name."""
        extra, disable = list(self.extra), list(self.disable)
        for option in options:
            (disable if option.startswith("no:") else extra).append(option.removeprefix("no:"))
        return dataclasses.replace(self, extra=tuple(dict.fromkeys(extra)), disable=tuple(dict.fromkeys(disable)))

    def with_config(self, config: Mapping[str, Any]) -> PluginSettings:
        """Merge a config's `plugins` section into these settings: lists are joined, single values set here win."""
        fields = [f.name for f in dataclasses.fields(PluginSettings)]
        for key, value in config.items():
            _check_config(key, value, fields)
        allow = config.get("allow")
        return PluginSettings(
            allow=self.allow if self.allow is not None or allow is None else tuple(allow),
            disable=tuple(dict.fromkeys([*config.get("disable", ()), *self.disable])),
            extra=tuple(dict.fromkeys([*config.get("extra", ()), *self.extra])),
            prefer={**config.get("prefer", {}), **self.prefer},
            strict=self.strict or config.get("strict", False),
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values that `PluginSettings().with_config` reads back."""
        allow = None if self.allow is None else list(self.allow)
        lists = {"allow": allow, "disable": list(self.disable), "extra": list(self.extra)}
        return {**lists, "prefer": dict(self.prefer), "strict": self.strict}


def _check_config(key: str, value: object, known: list[str]) -> None:
    if key not in known:
        hint = did_you_mean(key, known, otherwise=f"known keys: {', '.join(known)}")
        raise ConfigError(f"unknown key {key!r} under 'plugins'", hint=hint)
    if key == "strict":
        is_right, wanted = isinstance(value, bool), "true or false"
    elif key == "prefer":
        is_right = isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair)
        wanted = 'a mapping like {"backend:docker": "acme-docker"}'
    else:
        is_list = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        is_right, wanted = is_list or (key == "allow" and value is None), "a list of names"
    if not is_right:
        raise ConfigError(f"'plugins.{key}': expected {wanted}, got {value!r}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
