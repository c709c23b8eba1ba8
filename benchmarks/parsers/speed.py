"""Measure speed and size of every parser family, as ratios within one run, and of the peers if installed.

Usage: python -m benchmarks.parsers.speed --write [--speed] [--peers-python PATH] [FAMILY ...]
       python -m benchmarks.parsers.speed --table

`--write` measures and writes speed.json beside this file; without `--peers-python` the peers' times in it are kept,
and with names of families all other families' figures; `--speed` measures times on the message only. Without `--write`
families are measured and printed only. `--table` prints the README's table. A message has 2,048 characters and three
calls whose arguments hold program text with quotes, backslashes and line breaks; all sides parse it with the tools'
schemas. `json.loads` reads the same calls as a JSON document of the same size, in turns with the parser, and the best
of many rounds counts on all sides.
"""

from __future__ import annotations

import argparse
import json
import os
import py_compile
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.parsers.behaviours import ask_peers
from benchmarks.parsers.wire_formats import WIRES

if TYPE_CHECKING:
    from hermes_core.contracts.parsing import ToolCallParser

RESULTS: Final = Path(__file__).with_suffix(".json")
SIZE: Final = 2048
LARGE: Final = 1_000_000
TARGETS: Final = {"parse": 8.0, "stream": 25.0, "pathological_s": 0.5, "import_ms": 30.0, "installed_mb": 1.0}
FORBIDDEN: Final = ("openai", "pydantic", "asyncio", "aiohttp", "transformers")
PEERS: Final = ("vllm", "sglang")
# Typical parameter text of an agent: indentation, both quotes, backslashes, brackets, comparisons.
CODE: Final = """def read(path):
\tif path == "C:\\\\temp" and 1 < 2:
\t\tprint('it\\\'s "ok"', rows[0]["name"], f"{path}\\n")
    return {"a": [1, 2], 'b': None}  # & done
"""
TOOLS: Final = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "content": {"type": "string"},
                    "limit": {"type": "integer"},
                    "exact": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["path", "content"],
            },
        },
    }
    for name in ("write", "search", "run")
)
_TOKEN: Final = re.compile(r" ?\w{1,6}|\s+|[^\w\s]")

IMPORTED: Final = """
import json, sys, time
import hermes_core.contracts.parsing
start = time.perf_counter()
from hermes_parsers import get_parser
get_parser(sys.argv[1])
print(json.dumps([1000 * (time.perf_counter() - start), [name for name in sys.argv[2:] if name in sys.modules]]))
"""


Write = Callable[[Sequence[tuple[str, Mapping[str, Any]]]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A format to measure: its name, its parser, and a writer of its calls."""

    name: str
    parser: str
    write: Write

    @property
    def opener(self) -> str:
        """The mark that a call written in it begins with, or where it has none, all the text before the name."""
        before = self.write([("NAME", {})]).partition("NAME")[0].lstrip()
        return next((mark for mark in self._marks() if before.startswith(mark)), before)

    @property
    def openers(self) -> str:
        """Every mark that may begin a call, one behind the other."""
        return "".join(dict.fromkeys((self.opener, *self._marks())))

    def _marks(self) -> tuple[str, ...]:
        from hermes_parsers import get_parser

        marks: tuple[str, ...] = getattr(get_parser(self.parser), "openers", ())
        return marks


def families() -> Iterator[Family]:
    """Yield the formats of the comparison with the peers, then all others, written by their own renderer."""
    from hermes_parsers import FAMILIES

    for wire in WIRES:
        yield Family(name=wire.family, parser=wire.parser, write=wire.calls)
    measured = {wire.parser for wire in WIRES}
    for family in FAMILIES:
        if not measured & set(family.names) and family.names[0] != "response_template":
            yield Family(name=family.names[0], parser=family.names[0], write=_renderer(family.names[0]))


def _renderer(name: str) -> Write:
    from hermes_parsers import get_parser

    parser = get_parser(name)

    def write(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        written = [{"function": {"name": name, "arguments": dict(arguments)}} for name, arguments in calls]
        return parser.render({"role": "assistant", "content": None, "tool_calls": written})

    return write


def message(family: Family, size: int = SIZE) -> tuple[str, str]:
    """Return a message of three calls of about this size, and the same calls as a JSON document of the same size."""
    written, document = "", ""
    for length in range(0, size, 3):
        calls = [(name, _arguments(number, CODE, length)) for number, name in enumerate(("write", "search", "run"))]
        text = family.write(calls)
        if len(text) > size:
            break
        written = text
        document = json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls])
    return written, document + " " * max(0, len(written) - len(document))


def _arguments(number: int, words: str, length: int) -> dict[str, Any]:
    text = (words * (length // len(words) + 1))[:length]
    return {
        "path": f"/tmp/notes-{number}.txt",
        "content": text,
        "limit": 10 + number,
        "exact": True,
        "tags": ["a", "b"],
    }


def _rounds(measured: Mapping[str, Callable[[], object]], seconds: float = 2.0) -> dict[str, float]:
    """Time functions in turns; return the best mean of a batch in microseconds."""
    best = dict.fromkeys(measured, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in measured.items():
            start = time.perf_counter()
            for _ in range(20):
                run()
            best[name] = min(best[name], (time.perf_counter() - start) * 1e6 / 20)
    return best


def speed(family: Family) -> dict[str, Any]:
    """Measure one family."""
    from hermes_parsers import get_parser

    parser = get_parser(family.parser)
    text, document = message(family)
    tokens = _TOKEN.findall(text)
    assert "".join(tokens) == text
    found = [json.loads(call.arguments) for call in parser.parse(text, TOOLS).calls]
    assert found == [call["arguments"] for call in json.loads(document)], (family.name, found)

    def stream() -> None:
        run = parser.stream(TOOLS)
        for token in tokens:
            run.feed(token)
        run.finish()

    best = _rounds({"json": lambda: json.loads(document), "parse": lambda: parser.parse(text, TOOLS), "stream": stream})
    return {
        "parser": family.parser,
        "characters": len(text),
        "tokens": len(tokens),
        "json_us": round(best["json"], 2),
        "parse_us": round(best["parse"], 2),
        "stream_us": round(best["stream"], 1),
        "parse": round(best["parse"] / best["json"], 2),
        "stream": round(best["stream"] / best["parse"], 2),
    }


def pathological(family: Family) -> dict[str, Any]:
    """Parse a megabyte of each hostile shape; return the slowest, and how many attempts and calls there are in it."""
    from hermes_parsers import get_parser

    parser = get_parser(family.parser)
    call = family.write([("write", {"path": "PLACE", "content": "x"})])
    cut = call[: call.index("PLACE")]
    shapes = {
        "marks": family.openers,
        "half a call": cut,
        "half a call, then quotes": cut + '\\"',
        "braces": family.opener + '{"a":',
        "brackets": family.opener + "[",
        "open braces": "{",
        "open brackets": "[",
        "quotes and backslashes": '\\"',
        "a call in prose": call[: len(call) // 3],
        "reasoning": "<think>",
    }
    texts = {name: unit * (LARGE // len(unit)) for name, unit in shapes.items()}
    texts["one open string"] = cut + "x \\\\ " * (LARGE // 5)
    seconds = {name: _once(parser, text) for name, text in texts.items()}
    slowest = max(seconds, key=lambda name: seconds[name])
    found = parser.parse(texts[slowest])
    return {
        "pathological_s": round(seconds[slowest], 3),
        "pathological_shape": slowest,
        "pathological_attempts": len(found.attempts),
        "pathological_calls": len(found.calls),
    }


def _once(parser: ToolCallParser, text: str) -> float:
    """Return the seconds of one parse; the best of three where the first is above the target."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        parser.parse(text)
        best = min(best, time.perf_counter() - start)
        if best <= TARGETS["pathological_s"]:
            break
    return best


def weight(name: str) -> dict[str, Any]:
    """Import one family in a fresh interpreter, several times, with byte code as an installer leaves it."""
    command = [sys.executable, "-c", IMPORTED, name, *FORBIDDEN]
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        variables = {**kept, "PYTHONPYCACHEPREFIX": folder}
        answers = [
            subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout for _ in range(6)
        ]
    runs = [json.loads(answer) for answer in answers]
    return {"import_ms": round(min(run[0] for run in runs), 1), "forbidden_imports": runs[0][1]}


def installed() -> dict[str, float]:
    """Return the size of the package's files in megabytes: as they are shipped, and with the byte code pip adds."""
    import hermes_parsers

    files = [file for file in Path(hermes_parsers.__file__).parent.rglob("*") if file.suffix in {".py", ".typed"}]
    shipped = sum(file.stat().st_size for file in files)
    compiled = sum(map(_byte_code, (file for file in files if file.suffix == ".py")))
    return {"installed_mb": round(shipped / 1e6, 3), "installed_compiled_mb": round((shipped + compiled) / 1e6, 3)}


def _byte_code(file: Path) -> int:
    """Return the size of a module's byte code, which is written elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        return Path(py_compile.compile(str(file), cfile=f"{folder}/module.pyc", doraise=True) or "").stat().st_size


def peer_jobs() -> list[dict[str, Any]]:
    """Return what the peers are asked to parse: the message of every format that they have."""
    return [
        {"peer": peer, "family": family.name, "text": message(family)[0], "tools": TOOLS}
        for family in families()
        for peer in PEERS
        if family.name in {wire.family for wire in WIRES}
    ]


def peers(python: Path) -> dict[str, dict[str, float | str]]:
    """Time the peers on the same messages with the same tools, on a ready parser."""
    jobs = peer_jobs()
    answers = ask_peers(python, [{**job, "time": 1.0} for job in jobs])
    found: dict[str, dict[str, float | str]] = {"versions": answers["versions"]}
    for job, answer in zip(jobs, answers["results"], strict=True):
        taken = answer.get("parse_s")
        said = answer.get("error") or "not measured"
        found.setdefault(str(job["family"]), {})[str(job["peer"])] = round(1e6 * taken, 1) if taken else said
    return found


def write(python: Path | None, names: Sequence[str], *, speed_only: bool = False) -> dict[str, Any]:
    """Measure the families of these names, or all, write the results and return them."""
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    committed = before.get("families", {})
    kept = {name: found for name, found in committed.items() if names}
    measured = measure(names, committed if speed_only else {})
    results = {
        "python": sys.version.split()[0],
        **installed(),
        "families": {**kept, **measured},
        "peers_us": peers(python) if python else before.get("peers_us", {}),
        "targets": TARGETS,
    }
    results["missed"] = missed(results)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return results


def measure(names: Sequence[str], kept: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """Measure the families of these names, or all, each once; of those in `kept` the speed only."""
    known = {family.name: family for family in families()}
    if unknown := set(names) - known.keys():
        raise SystemExit(f"no families of these names: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    measured = {}
    for name in names or known:
        print(f"{name} …", file=sys.stderr, flush=True)
        family = known[name]
        rest = (kept or {}).get(name) or {**pathological(family), **weight(family.parser)}
        measured[name] = {**rest, **speed(family)}
    return measured


def missed(results: Mapping[str, Any]) -> list[str]:
    """List the figures above their targets."""
    above = [
        f"{family}: {key} {found[key]} > {target}"
        for family, found in results["families"].items()
        for key, target in TARGETS.items()
        if key in found and found[key] > target
    ]
    above += [
        f"{family}: imports {found['forbidden_imports']}"
        for family, found in results["families"].items()
        if found["forbidden_imports"]
    ]
    sizes = {key: results[key] for key in ("installed_mb", "installed_compiled_mb") if key in results}
    target = TARGETS["installed_mb"]
    return above + [f"{key} {size} > {target}" for key, size in sizes.items() if size > target]


def table(results: Mapping[str, Any]) -> str:
    """Return the README's table."""
    head = ["family", "parse", "÷ json.loads", "stream ÷ parse", "1 MB hostile", "attempts", "import", "vLLM", "SGLang"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for family, found in results["families"].items():
        others = [_microseconds(results["peers_us"].get(family, {}).get(peer)) for peer in PEERS]
        cells = [
            f"`{family}`",
            f"{found['parse_us']:.0f} µs",
            f"{found['parse']:.1f}×",
            f"{found['stream']:.1f}×",
            f"{found['pathological_s']:.2f} s",
            f"{found['pathological_attempts']:,}" if "pathological_attempts" in found else "-",
            f"{found['import_ms']:.0f} ms",
            *others,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    median = statistics.median(found["parse"] for found in results["families"].values())
    lines += ["", f"Median {median:.1f}× `json.loads`; {_sizes(results)}; Python {results['python']}{_peers(results)}."]
    return "\n".join([*lines, "", *_misses(results)])


def _peers(results: Mapping[str, Any]) -> str:
    """Name the versions of the peers."""
    versions = results["peers_us"].get("versions", {})
    return "".join(f"; {name} {version}" for name, version in versions.items())


def _sizes(results: Mapping[str, Any]) -> str:
    """Return the size of the package as text."""
    compiled = results.get("installed_compiled_mb")
    shipped = f"{results['installed_mb']:.2f} MB of files"
    return f"{shipped}, {compiled:.2f} MB with the byte code that pip adds" if compiled else shipped


def _misses(results: Mapping[str, Any]) -> list[str]:
    """Return the figures above their targets as text."""
    return ["Above their targets: " + "; ".join(results["missed"]) + "."] if results["missed"] else []


def _microseconds(value: float | str | None) -> str:
    return f"{value:,.0f} µs" if isinstance(value, float | int) else "-"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="measure and write speed.json")
    parser.add_argument("--speed", action="store_true", help="keep what hostile text and importing cost")
    parser.add_argument("--table", action="store_true", help="print the table of the committed results")
    parser.add_argument("--peers-python", type=Path, help="a Python with vLLM and SGLang; else their times are kept")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="measure only these; the others are kept")
    arguments = parser.parse_args()
    if arguments.write:
        results = write(arguments.peers_python, arguments.families, speed_only=arguments.speed)
    elif arguments.families:
        print(json.dumps(measure(arguments.families), indent=1))
        return 0
    else:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    print(table(results) if arguments.table else "\n".join(results["missed"]) or "all targets met")
    return 1 if arguments.write and results["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
