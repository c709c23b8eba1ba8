"""Check or write what docs/architecture.md has between marks: who depends on whom, the packages, and the hooks.

    scripts/architecture_table.py            says whether the page is out of date, and exits with 1 if so
    scripts/architecture_table.py --write    writes it

Lines are rounded to hundreds, so that not every commit changes the page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import public_api
from hook_map import Hook, read_hooks
from workspace import ROOT, Package, packages, requirement_name

PAGE = ROOT / "docs" / "architecture.md"
COMMAND = ".venv/bin/python scripts/architecture_table.py --write"
KERNEL = "hermes-agent-core"
MEMBERS = packages()
OURS = {package.name for package in MEMBERS}
NOTHING = "-"


def with_tables(page: str) -> str:
    """Return a page with each generated part in its place; raises `ValueError` where it lacks a part's marks."""
    for name, text in {"imports": diagram(), "packages": package_table(), "hooks": hook_table()}.items():
        begin, end = f"<!-- {name}: begin, written by scripts/architecture_table.py -->", f"<!-- {name}: end -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"expected {begin} and {end} in the page, each once")
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"
    return page


def diagram() -> str:
    """Draw which package depends on which: an arrow leads to the kernel only where there is no other."""
    alone = [package.name for package in MEMBERS if package.name != KERNEL and not _needs(package)]
    lines = [f"    {' & '.join(alone)} --> {KERNEL}"]
    for package in MEMBERS:
        needs, extras = _needs(package), _wants(package)
        lines += [f"    {package.name} --> {' & '.join(needs)}"] if needs else []
        lines += [f"    {package.name} -.-> {' & '.join(extras)}"] if extras else []
    return "\n".join(["```mermaid", "flowchart RL", *lines, "```"])


def _needs(package: Package) -> list[str]:
    """Return the packages of ours that a package needs besides the kernel."""
    names = map(requirement_name, package.dependencies)
    return [name for name in names if name in OURS - {KERNEL}]


def _wants(package: Package) -> list[str]:
    """Return those that its extras bring; the kernel's bring all, and are not shown."""
    if package.name == KERNEL:
        return []
    names = {requirement_name(line) for lines in package.extras.values() for line in lines}
    return sorted(names & OURS - {KERNEL, *_needs(package)})


def package_table() -> str:
    """List every package: where it lies, how large it is, what it offers and what it needs."""
    header = ("package", "folder", "lines", "files", "public names", "needs of ours", "needs of others")
    return _table(header, map(_package_row, MEMBERS))


def _package_row(package: Package) -> tuple[str, ...]:
    paths = sorted((package.folder / "src").rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    folder = package.folder.relative_to(ROOT)
    others = [name for line in package.dependencies if (name := requirement_name(line)) not in OURS]
    return (
        f"`{package.name}`",
        f"`{folder}/`",
        f"{max(round(lines, -2), 100):,}",
        str(len(paths)),
        f"[{_public_names(package)}](../{folder}/{public_api.SNAPSHOT})",
        ", ".join(name.removeprefix("hermes-") for name in _needs(package)) or NOTHING,
        ", ".join(others) or NOTHING,
    )


def _public_names(package: Package) -> int:
    """Count the names in the package's snapshot, whose modules begin a line and whose names are four spaces in."""
    snapshot = (package.folder / public_api.SNAPSHOT).read_text(encoding="utf-8")
    return len(set(re.findall(r"^ {4}(?:class |def |async def )?(\w+)", snapshot, re.MULTILINE)))


def hook_table() -> str:
    """List every hook with the files that a reader wants to open."""
    header = (
        "hook, declared in `hookspecs.py`",
        "what it is for",
        "called in",
        "contract",
        "a shipped implementation",
        "a test",
    )
    return _table(header, map(_hook_row, read_hooks()))


def _hook_row(hook: Hook) -> tuple[str, ...]:
    contract = f"`{short(hook.contract[0])}` `{hook.contract[1]}`" if hook.contract else NOTHING
    more = f", {len(hook.implementations) - 1} more" if len(hook.implementations) > 1 else ""
    return (
        f"`{hook.name}`",
        hook.told,
        ", ".join(f"`{short(path)}`" for path in hook.calls),
        contract,
        f"`{short(hook.implementations[0])}`{more}" if hook.implementations else NOTHING,
        f"`{hook.tests[0].name}`" if hook.tests else NOTHING,
    )


def short(path: Path) -> str:
    """Return a module's path as the page writes it: from its import package on."""
    return path.relative_to(ROOT).as_posix().partition("/src/")[2]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first, *others = (f"| {' | '.join(row)} |" for row in (header, *rows))
    return "\n".join([first, f"|{'---|' * len(header)}", *others])


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    """Write the page, or say whether it is out of date and exit with 1."""
    old = page.read_text(encoding="utf-8")
    new = with_tables(old)
    if new == old:
        return 0
    if "--write" in arguments:
        page.write_text(new, encoding="utf-8")
    print(f"{page}: {'written' if '--write' in arguments else f'out of date; run {COMMAND}'}")
    return 0 if "--write" in arguments else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
