"""What of a configuration nobody may read, decided in one place for terminals, files, leases and errors.

In this order: what a component's `Options` declare as a secret of pydantic's, what a name says to be one (`token`,
`db_password`), every value of an environment or of headers, the word after `--password` in a list, and in any text the
user and password of a URL, secret parameters of its query, `--password=…`, `Authorization: …` and private keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel

WITHHELD: Final = "(withheld)"
"""What stands in a secret's place."""

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_SECRET: Final = re.compile(
    r".*passw(?:or)?ds?|(?:.*_)?(?:pass|pwd|passcode|passphrases?|credentials?|authorization|auth|bearer|cookies?|jwt|token"
    r"|(?:access|api|auth|bearer|refresh|session)_?tokens?"
    r"|(?:access|account|api|encryption|hmac|master|private|secret|secret_access|signing)_?keys?)"
    r"|(?:.*_)?(?:api|app|client|consumer|jwt|shared|signing|token|webhook)_secret|secret"
)
_TAIL: Final = re.compile(r"(?<!pass)(?<!pass_)(?:_?\d+|_(?:b64|base64|header|json|pem|value))\Z")
"""What a name of a secret may end in; `pass_1` is a share of rollouts."""
_VOCABULARY: Final = re.compile(
    r"(?:.*_)?(?:audio|begin|bos|call|close|cls|end|eom|eos|eot|first|image|last|mask|max|min|new|next|num|open|pad"
    r"|reasoning|response|sep|special|start|stop|think|thinking|tool|turn|unk|video)_token"
)
"""Tokens of a model's vocabulary and numbers of them, which are no secrets."""
_ENVIRONMENT: Final = re.compile(
    r"(?:.*_)?(?:env|envs|env_vars?|environ|environment|environment_(?:vars|variables)|export|headers|secrets)"
)
_QUERY: Final = re.compile(r"(?<=[?&])([\w.-]+)=([^&#\s'\"]+)")
_QUERY_ONLY: Final = frozenset({"key", "sig", "signature", "x_amz_signature", "code"})
# A password may hold a slash against the rules; what follows a colon and is no port is taken for one. What stands
# before a digest is the name of an image.
_USERINFO: Final = re.compile(r"(?<=://)(?:[^/?#\s]*|[^/?#\s:@]*:(?!\d+/)[^\s'\"]*)@(?!sha\d+:[0-9a-f])")
# What stands in a secret's place is none, or the second time would take more of the text than the first.
_ASSIGNMENT: Final = re.compile(
    r"(?<![\w?&-])(-{0,2})([A-Za-z][\w-]*)=(?![…$<]|\(withheld\))('[^']+'|\"[^\"]+\"|[^\s'\"]+)"
)
_DEEPEST: Final = 50
"""Assignments within one another; where there are more, nobody looks what is in them."""
_OPTION: Final = re.compile(r"--?([A-Za-z][\w-]*)")
_HEADER: Final = re.compile(
    r"(?<![\w-])((?:[\w-]+-)?authorization|x-[\w-]*(?:key|token))(:\s*)(?![…$<(])((?:[A-Za-z]+[ \t]+)?[^\s'\"]+)",
    re.IGNORECASE,
)
_VARIABLE: Final = re.compile(r"([\w.-]+)(=|: ?)(.*)", re.DOTALL)
"""One of a list of variables or headers."""
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_KEY: Final = re.compile(
    r"(?=(?:.*[^A-Za-z0-9])?(?=[A-Za-z0-9]{12})(?:[A-Za-z]+[0-9]|[0-9]+[A-Za-z]|[0-9]{12}))[A-Za-z0-9_+=.-]{16,}"
)
"""What a key looks like where nothing else tells that it is one: letters and digits in a row, not as in a model's
name."""
_WITHHELD_IN: Final = re.compile(rf"//{re.escape(WITHHELD)}@|(?:=|[\w-]: ?){re.escape(WITHHELD)}")
_SUSPECT: Final = re.compile(r"[=@:\s]")
"""One of these is in every text with a secret that gives itself away."""
_CREDENTIALS: Final = re.compile(r"(?:Basic|Bearer)\s+\S+", re.IGNORECASE)


@lru_cache(maxsize=1024)  # asked for every option whenever a lease is written, and always the same ones
def is_secret_name(name: str) -> bool:
    """Tell whether an option or variable of this name is taken for a secret: by its last words, in any spelling."""
    name = _TAIL.sub("", _plain(name))
    return _SECRET.fullmatch(name) is not None and _VOCABULARY.fullmatch(name) is None


def shown(text: str) -> str:
    """Return a text with the secrets that its own form gives away replaced by `WITHHELD`."""
    if _SUSPECT.search(text) is None:
        return text
    if _CREDENTIALS.fullmatch(text):
        return WITHHELD
    text = _USERINFO.sub(_login, text)
    text = _HEADER.sub(rf"\1\2{WITHHELD}", text)
    text = _QUERY.sub(_parameter, text)
    text = _ASSIGNMENT.sub(_assigned, text)
    return _PRIVATE_KEY.sub(WITHHELD, text)


def shown_address(address: str) -> str:
    """Return an address without user and password, also one that is no URL: all before its last `@` is withheld."""
    before, at, rest = address.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return shown(f"{scheme + separator if separator else ''}{WITHHELD}@{rest}" if at else address)


def hidden(value: Any, name: str = "") -> Any:
    """Return a copy of plain values, as found under `name`, with `WITHHELD` in the place of each secret."""
    return _Walk().walk(value, name)


def hidden_at(value: Any, place: Sequence[Any]) -> Any:
    """Return a plain value hidden where any name on the way to it, `place`, says that it must be."""
    for step in reversed(place):
        value = {str(step): value}
    value = hidden(value)
    for step in place:
        if isinstance(value, Mapping):
            value = value[str(step)]
    return value


def shown_value(value: Any, place: Sequence[Any]) -> str:
    """Return the `repr` of such a value for an error."""
    return f"{hidden_at(value, place)!r:.200}"


def yaml_problem(error: Exception) -> str:
    """Say what is wrong with a YAML text and where, without the line itself: there may be a secret in it."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem is None or mark is None:
        return str(error) if isinstance(error, UnicodeDecodeError) else type(error).__name__
    said = re.sub(r"'[^']{2,}'", "'…'", problem)
    return f"{said} in line {mark.line + 1}, column {mark.column + 1}"


def kept(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what may be kept on a disk, without the secrets, and their paths, as "jump.0.password".

    Environments are left empty, which the paths do not tell: nothing that exists is found again by them.
    """
    walk = _Walk()
    return _remaining(walk.walk(values, "")), tuple(walk.paths)


def texts(values: Any) -> frozenset[str]:
    """Return the texts that `hidden` withholds of these values, for those to whom they come back in another text.

    Of variables only those that are secret by their name or look like a key: the others may be words of any text.
    """
    walk = _Walk()
    walk.walk(values, "")
    return frozenset(walk.texts)


def comparable(value: Any, name: str = "") -> Any:
    """Return hidden values as two runs may be compared by them: no secret counts, of environments only the names.

    Neither does it count whether there is a secret at all: it may have come to be, or no longer be, in a variable.
    """
    if isinstance(value, Mapping):
        if _is_environment(name):
            return {key: WITHHELD for key in sorted(map(str, value)) if not is_secret_name(key)}
        pairs = {key: comparable(hidden(item, str(key)), str(key)) for key, item in value.items() if item != WITHHELD}
        return {key: item for key, item in pairs.items() if item not in (WITHHELD, {})}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value if item != WITHHELD]
    return value.replace(f"{WITHHELD}@", "") if isinstance(value, str) else value


def declared(options: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return options with a `SecretStr` wherever the model declares one, and for what the model does not know."""
    from pydantic import SecretStr

    fields = {name: field.annotation for name, field in model.model_fields.items()}
    for field in model.model_fields.values():
        others = (field.alias, field.validation_alias)
        fields |= {other: field.annotation for other in others if isinstance(other, str)}
    known = model.model_config.get("extra") == "allow"
    return {
        name: _typed(item, fields[name]) if name in fields else item if known else SecretStr(str(item))
        for name, item in options.items()
    }


def unknown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of which nobody knows what is secret: each of them is."""
    from pydantic import SecretStr

    return {name: SecretStr(str(item)) for name, item in options.items()}


def find_withheld(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which `WITHHELD` stands where a secret was wanted."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from find_withheld(item, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from find_withheld(item, f"{path}.{index}")
    elif isinstance(value, str) and (value == WITHHELD or _WITHHELD_IN.search(value)):
        yield path


class _Walk:
    """Goes through plain values; notes the paths and the texts of what it withholds."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.texts: set[str] = set()

    def walk(self, value: Any, name: str, path: str = "") -> Any:
        if value is None or isinstance(value, bool) or value in ("", b""):
            return value
        if hasattr(value, "model_dump"):
            value = value.model_dump()
        is_container = isinstance(value, Mapping | list | tuple | set | frozenset)
        # What is needed to log in, as a registry's {username, password, address}, is not secret as a whole.
        is_secret = is_secret_name(name) and not (is_container and _plain(name).endswith("auth"))
        if is_secret or hasattr(value, "get_secret_value"):
            return self._withheld(value, path)
        if _is_environment(name) and (is_container or "=" in str(value) or ": " in str(value)):
            return self._environment(value)
        return self._inside(value, path)

    def _inside(self, value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return {key: self.walk(item, str(key), f"{path}.{key}".lstrip(".")) for key, item in value.items()}
        if isinstance(value, list | tuple):
            befores = ("", *value)  # an option's value may be the next word
            return [
                self._withheld(item, f"{path}.{n}")
                if isinstance(item, str) and not item.startswith("-") and _is_option(befores[n])
                else self.walk(item, "", f"{path}.{n}")
                for n, item in enumerate(value)
            ]
        if isinstance(value, set | frozenset):
            return [self.walk(item, "", f"{path}.{n}") for n, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _withheld(self, value: Any, path: str) -> str:
        self.paths.append(path)
        self.texts.update(_leaves(value))
        return WITHHELD

    def _environment(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item if item is None else self._variable(item, str(key)) for key, item in value.items()}
        if isinstance(value, str):
            return self._variable(value)
        return [self._assignment(item) for item in value]

    def _assignment(self, item: Any) -> Any:
        """Hide one of a list of variables: `NAME=VALUE`, or {name: NAME, value: VALUE}."""
        if isinstance(item, Mapping):
            return {
                key: text if _plain(str(key)) in {"name", "key"} else self._variable(text) for key, text in item.items()
            }
        found = _VARIABLE.fullmatch(str(item))
        return f"{found[1]}{found[2]}{self._variable(found[3], found[1])}" if found else item

    def _variable(self, value: Any, name: str = "") -> str:
        # Hidden it is always; it is looked for elsewhere only if it is no word, path or number as others are, too.
        for text in _leaves(value):
            self.texts.update([text] if is_secret_name(name) or _KEY.fullmatch(text) else _secrets_in(text))
        return WITHHELD

    def _text(self, value: str, path: str) -> str:
        found = shown(value)
        if found != value:
            self.paths.append(path)
            self.texts.update(_secrets_in(value))
        return found


def _secrets_in(text: str) -> Iterator[str]:
    for match in _USERINFO.finditer(text):
        user, _, password = match[0][:-1].partition(":")
        if _login(match) != match[0]:
            yield password or user
    for match in _HEADER.finditer(text):
        yield match[3].split()[-1]
    for match in _QUERY.finditer(text):
        if _parameter(match) != match[0]:
            yield match[2]
    for match in _ASSIGNMENT.finditer(text):
        if _is_secret_assignment(match):
            yield match[3].strip("'\"")
        else:
            yield from _secrets_in(match[3])


def _remaining(value: Any) -> Any:
    """Leave out what a walk has withheld; of a URL only what was withheld of it."""
    if isinstance(value, Mapping):
        left = ((key, _remaining(item)) for key, item in value.items())
        return {key: item for key, item in left if not _lacks(item)}
    if isinstance(value, list):
        # With an option's value goes its name.
        afters = (*value[1:], None)
        pairs = ((_remaining(item), n) for n, item in enumerate(value))
        return [item for item, n in pairs if not _lacks(item) and not (_lacks(afters[n]) and _is_option(item))]
    return value.replace(f"{WITHHELD}@", "") if isinstance(value, str) else value


def _lacks(item: Any) -> bool:
    return isinstance(item, str) and WITHHELD in item


def _typed(value: Any, annotation: Any) -> Any:
    from pydantic import BaseModel, SecretBytes, SecretStr

    if value is None:
        return None
    kinds = list(_alternatives(annotation))
    if any(isinstance(kind, type) and issubclass(kind, SecretStr | SecretBytes) for kind in kinds):
        return SecretStr(str(value))
    if isinstance(value, Mapping):
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if models:
            return declared(value, models[0])
        items = [get_args(kind)[1] for kind in kinds if len(get_args(kind)) == 2 and get_origin(kind) is not tuple]
        return {name: _typed(item, items[0]) for name, item in value.items()} if items else value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        inner = [arg for kind in kinds for arg in get_args(kind) if arg is not ...]
        return [_typed(item, inner[0]) for item in value] if inner else value
    # Written in another form than the model's own, where that would hold a secret somewhere.
    return SecretStr(str(value)) if any(_holds_secret(kind, set()) for kind in kinds) else value


def _holds_secret(kind: Any, seen: set[Any]) -> bool:
    from pydantic import BaseModel, SecretBytes, SecretStr

    if kind in seen:
        return False
    seen.add(kind)
    inner = list(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        inner = [field.annotation for field in kind.model_fields.values()]
    is_secret = isinstance(kind, type) and issubclass(kind, SecretStr | SecretBytes)
    return is_secret or any(_holds_secret(part, seen) for part in inner)


def _alternatives(annotation: Any) -> Iterator[Any]:
    """Yield what a union or an annotated type is made of; anything else is itself."""
    from types import UnionType
    from typing import Annotated, Union

    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        for each in get_args(annotation):
            yield from _alternatives(each)
    elif origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    else:
        yield annotation


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _leaves(item)]
    if isinstance(value, list | tuple | set | frozenset):
        return [text for item in value for text in _leaves(item)]
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    return [str(value)] if value is not None else []


def _is_option(text: Any) -> bool:
    """Tell whether it is an option of a command line whose value is secret, and which is the next word."""
    found = _OPTION.fullmatch(text) if isinstance(text, str) else None
    return found is not None and is_secret_name(found[1])


def _login(match: re.Match[str]) -> str:
    # The user of SSH is no secret, as in git+ssh://git@host.
    is_ssh = match.string[: match.start()].endswith("ssh://") and ":" not in match[0]
    return match[0] if is_ssh else f"{WITHHELD}@"


def _parameter(match: re.Match[str]) -> str:
    withhold = is_secret_name(match[1]) or _plain(match[1]) in _QUERY_ONLY
    return f"{match[1]}={WITHHELD}" if withhold else match[0]


def _assigned(match: re.Match[str]) -> str:
    # An argument may itself be an assignment: --export=TOKEN=…
    value = WITHHELD if _is_secret_assignment(match) else _ASSIGNMENT.sub(_assigned, match[3])
    return f"{match[1]}{match[2]}={value}"


def _is_secret_assignment(match: re.Match[str]) -> bool:
    if match[3].count("=") > _DEEPEST and len(re.findall(r"[\w-]=", match[3])) > _DEEPEST:
        return True
    return is_secret_name(match[2]) or (_is_environment(match[2]) and "=" in match[3])


@lru_cache(maxsize=1024)
def _is_environment(name: str) -> bool:
    # What Ray calls a runtime_env has an environment in it, env_vars, beside packages and folders.
    name = _plain(name)
    return _ENVIRONMENT.fullmatch(name) is not None and name != "runtime_env"


def _plain(name: str) -> str:
    return _WORDS.sub("_", name).strip("_").lower()
