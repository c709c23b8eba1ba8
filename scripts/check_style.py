"""Check what ruff has no rule for: sizes, empty names, excepts and suppressions without a reason, os.environ.

Prints one line per finding, in the form an editor can jump to, and exits with 1 when there is any.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from workspace import ROOT

MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 60
# Names that say nothing about the content and therefore grow without end.
EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "managers", "manager"})
ENVIRON_WRITERS = frozenset({"update", "setdefault", "pop", "popitem", "clear", "putenv", "unsetenv"})


def main(arguments: Sequence[str]) -> int:
    """Check the given files, by default every Python file that git knows or would add."""
    paths = [Path(argument) for argument in arguments] or list(_python_files())
    findings = [finding for path in paths for finding in check(path)]
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"style: {len(findings)} findings in {len(paths)} files")
    return 1 if findings else 0


def check(path: Path) -> Iterator[str]:
    """Yield the findings in one file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if len(lines) > MAX_FILE_LINES:
        yield f"{shown}:1: {len(lines)} lines, at most {MAX_FILE_LINES} (split it by idea)"
    if path.stem.strip("_") in EMPTY_NAMES:
        yield f"{shown}:1: the name says nothing about the content; name the file after a noun of the domain"
    for line, message in _suppressions(text):
        yield f"{shown}:{line}: {message}"
    for node in ast.walk(ast.parse(text, filename=str(path))):
        for line, message in _node_findings(node, lines, in_test="tests" in path.parts):
            yield f"{shown}:{line}: {message}"


def _node_findings(node: ast.AST, lines: Sequence[str], *, in_test: bool) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield node.lineno, f"function {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"
    elif isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _has_reason(node, lines):
        yield node.lineno, "broad except without a comment that says why this is the place for it"
    elif not in_test and _writes_environment(node):
        yield getattr(node, "lineno", 1), "writes to the process environment; pass a mapping instead"


def _is_broad(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False  # cleans up and lets everything through
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _BROAD) for kind in types)


_BROAD = frozenset({"Exception", "BaseException"})


def _has_reason(handler: ast.ExceptHandler, lines: Sequence[str]) -> bool:
    """Look for a comment on the line itself, just above it, or just below it, that is more than a lint code."""
    start = max(handler.lineno - 2, 0)
    return any(_reason(line.partition("#")[2]) for line in lines[start : handler.body[0].lineno])


def _suppressions(text: str) -> Iterator[tuple[int, str]]:
    """Yield the suppressed lint and type findings that do not say why."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and _SUPPRESSION.search(token.string) and not _reason(token.string):
            yield token.start[0], f"`{token.string}` needs its reason beside it: `{token.string} - why`"


_SUPPRESSION = re.compile(r"(noqa|type:\s*ignore)(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|\[[\w, -]+\])?")


def _reason(comment: str) -> str:
    return _SUPPRESSION.sub("", comment).strip("# -\n")


def _writes_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _is_environ(node.value)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr in {"putenv", "unsetenv"}:
        return isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
    return node.func.attr in ENVIRON_WRITERS and _is_environ(node.func.value)


def _is_environ(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "environ" and isinstance(node.value, ast.Name) and node.value.id == "os"
    return isinstance(node, ast.Name) and node.id == "environ"


def _python_files() -> Iterator[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    yield from (path for name in sorted(filter(None, listed.split("\0"))) if (path := ROOT / name).is_file())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
