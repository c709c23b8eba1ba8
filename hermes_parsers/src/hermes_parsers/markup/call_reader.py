"""Read one call of tagged parameters: decide whether it is a call, and what is wrong with it."""

from __future__ import annotations

from typing import Final

from hermes_core.contracts.parsing import AttemptStatus
from hermes_parsers.markup.call import Call
from hermes_parsers.markup.dialect import Dialect
from hermes_parsers.markup.source import IncompleteError, Source
from hermes_parsers.schemas import known_names

_MAX_JUNK: Final = 200
"""The maximum length of other text between a call's opening tag and its parameters; with more, all of it counts as
prose.
"""


def enter_call(source: Source, call: Call, is_in_block: bool) -> int:  # noqa: FBT001 - waited for with its arguments
    """Read the tag at `call.start`; return where the parameters begin, or -1 when it is prose. Raises IncompleteError.

    A call that ends before any parameter is read to its end.
    """
    dialect, at = call.dialect, call.start
    tag = source.tag(dialect.call, at)
    if tag is None:
        return _cut(source, call) if source.is_cut_tag(dialect.call, at) else -1
    call.name = tag[1].strip()
    begin = source.space(tag.end())
    if dialect.call.closes_itself(tag):
        # If a name has no quotes around it, the slash is read as its last character.
        call.name = call.name.removesuffix("/").strip()
        call.repair(f"{tag[0].strip()!r:.80} closes itself")
        has_body = _has_body(source, dialect, begin)
        if not has_body and not is_in_block and not _is_meant(source, call, begin):
            return -1
        if not has_body and not _is_cut_body(source, dialect, begin):
            call.finish(tag.end(), is_closed=True)
            return call.end
    if begin == len(source.text):
        return _cut(source, call)
    return (
        begin if source.sees_one(dialect.body_marks, begin) else _enter_without_body(source, call, begin, is_in_block)
    )


def _is_meant(source: Source, call: Call, begin: int) -> bool:
    """Whether a self-closing tag without a block around it is a call: XML in an answer looks the same."""
    if not call.dialect.is_common:
        return True
    known = known_names(call.tools) if call.tools else None
    return call.name in known if known else _is_followed_by_a_call(source, call, begin, False)


def _has_body(source: Source, dialect: Dialect, begin: int) -> bool:
    """Whether parameters or the closing mark follow a self-closing tag."""
    # Nested parameters begin like every other mark.
    return source.sees_one((dialect.call_close,) if dialect.element else dialect.body_marks, begin)


def _is_cut_body(source: Source, dialect: Dialect, begin: int) -> bool:
    """Whether the final text ends inside the mark of a parameter, or the closing one."""
    return not dialect.element and begin < len(source.text) and source.is_cut_mark(dialect.body_marks, begin)


def _enter_without_body(source: Source, call: Call, begin: int, is_in_block: bool) -> int:  # noqa: FBT001 - as above
    """Read a call without a parameter at `begin`: its end is missing, other text is there, or it is prose."""
    dialect = call.dialect
    if _is_followed_by_a_call(source, call, begin, is_in_block):
        call.finish(begin)
        return begin
    # Without marks around calls, an object is enough to distinguish a slip from prose.
    if is_in_block or (not dialect.blocks and source.text[begin] == "{"):
        return _without_body(source, call, begin)
    return _cut(source, call) if source.is_cut_mark(dialect.body_marks, begin) else -1


def _is_followed_by_a_call(source: Source, call: Call, begin: int, is_in_block: bool) -> bool:  # noqa: FBT001 - as above
    """Whether the call has no parameters and no end: the mark after it, or the next call, begins here.

    Without marks around both, two tags in a row may be prose; a known name or the next call's body shows that they are
    not.
    """
    dialect = call.dialect
    if dialect.suffix and source.sees(dialect.suffix, begin):
        return True
    for opening in filter(None, (*(opening for opening, _ in dialect.blocks), dialect.prefix)):
        if source.sees(opening, begin):
            begin = source.space(begin + len(opening))
    tag = source.tag(dialect.call, begin) if source.sees(dialect.call.opening, begin) else None
    if tag is None or is_in_block:
        return tag is not None
    known = known_names(call.tools) if call.tools else None
    return call.name in known if known else source.sees_one(dialect.body_marks, source.space(tag.end()))


def _cut(source: Source, call: Call) -> int:
    call.finish(len(source.text), is_cut=True)
    call.fail(AttemptStatus.TRUNCATED, "the text ends before the call's parameters")
    return call.end


def _without_body(source: Source, call: Call, begin: int) -> int:
    """Classify a tag that no parameter follows: the block's end, a slip before the parameters, or prose."""
    text, dialect = source.text, call.dialect
    if source.sees_any(dialect.block_closes, begin):
        call.finish(begin)
        call.fail(AttemptStatus.UNCLOSED, f"the closing {dialect.call_close} is missing")
        return begin
    limit = begin + _MAX_JUNK
    token = next(dialect.tokens(text, begin, limit), None)
    if token is None:
        if len(text) < limit and not source.final:
            raise IncompleteError
        return _cut(source, call) if source.is_cut_mark(dialect.body_marks, begin) else -1
    if token.lastgroup not in {"open", "close", "end"}:
        return -1
    junk = text[begin : token.start()].strip()
    call.fail(AttemptStatus.INVALID_JSON, f"expected a parameter after the call's tag, got {junk!r:.80}")
    return token.start()


def judge(call: Call, size: int) -> None:
    """Set the result of a call that has been read to its end, in a text of this size."""
    doubled = call.dialect.parameter.doubled
    for name, attribute, *_ in call.parameters if doubled else ():
        if attribute.startswith(doubled):
            call.repair(f"{name.strip()}: {doubled} appears twice")
    if call.status is AttemptStatus.OK:
        _judge(call, size)
    if call.repairs and call.status in {AttemptStatus.OK, AttemptStatus.UNCLOSED}:
        told = [f"repaired: {', '.join(call.repairs)}", call.reason]
        status = AttemptStatus.REPAIRED if call.status is AttemptStatus.OK else call.status
        call.fail(status, "; ".join(filter(None, told)))


def _judge(call: Call, size: int) -> None:
    if call.is_cut and call.end == size:
        call.fail(AttemptStatus.TRUNCATED, "the text ends inside the call")
    elif call.is_cut:
        call.fail(AttemptStatus.INVALID_JSON, "another call begins before this one ends")
    elif call.junk and _is_broken(call):
        call.fail(AttemptStatus.INVALID_JSON, f"expected a parameter, got {call.junk!r:.80}")
    elif any(not name.strip() for name, *_ in call.parameters):
        call.fail(AttemptStatus.INVALID_JSON, "a parameter has no name")
    else:
        is_closed = call.is_closed and not call.doubt and all(is_closed for *_, is_closed in call.parameters)
        status = AttemptStatus.OK if is_closed else AttemptStatus.UNCLOSED
        call.fail(status, "; ".join(_notes(call, call.dialect)))


def _is_broken(call: Call) -> bool:
    """Whether a parameter is unreadable: without it, the call would not be what the model meant."""
    marks = (call.dialect.parameter.opening, call.dialect.parameter_close)
    return not call.parameters or any(mark in call.junk for mark in marks)


def _notes(call: Call, dialect: Dialect) -> list[str]:
    notes = [] if call.is_closed else [f"the closing {dialect.call_close} is missing"]
    if call.doubt:
        notes.append(call.doubt)
    if call.junk:
        notes.append(f"left out text between the parameters: {call.junk!r:.80}")
    given: set[str] = set()
    for name, _, text, is_closed in call.parameters:
        if name in given:
            notes.append(f"{name}: given more than once, the last one counts")
        given.add(name)
        if not is_closed:
            notes.append(f"{name}: its closing mark is missing")
        elif dialect.parameter_close in text and not dialect.element:
            notes.append(f"{name}: a closing mark inside the value was read as text")
        elif dialect.parameter.opening in text and not dialect.element:
            notes.append(f"{name}: an opening mark inside the value was read as text")
    return notes
