"""The suite every tool-call parser passes."""

from __future__ import annotations

from hermes_testing.suites.parser.blocks import Blocks
from hermes_testing.suites.parser.calls import Calls
from hermes_testing.suites.parser.damage import Damage
from hermes_testing.suites.parser.fuzz import Fuzz
from hermes_testing.suites.parser.growth import Growth
from hermes_testing.suites.parser.rendering import Render
from hermes_testing.suites.parser.streams import Streams
from hermes_testing.suites.parser.values import Values


class ParserSuite(Calls, Values, Damage, Blocks, Streams, Render, Fuzz, Growth):
    """Behaviour of a tool-call parser.

    Set `plugin`, `component` and `block_marks`, and implement `wire`; `answer`, `malformed`, `mark` and
    `reasoning_tags` have defaults.
    Capabilities that may be named in `lacks`:

    `text_before`, `text_after`: text may stand before, after the calls of a message.
    `many_calls`: a message may hold more than one call.
    `separate_calls`: each call has marks of its own; calls that are items of one list do not.
    `end_mark`: a mark says where a call, or the list of them, ends, and a call is seen to be whole without it.
    `block_marks`: two marks that mean nothing else stand around a call, or around all of them.
    `block_ends`: the mark that closes a block closes nothing else, so that it may be written twice.
    `reasoning`: the format knows reasoning, between `reasoning_tags`.
    `render`: messages can be written.
    `early_events`: a stream tells text, reasoning and calls before `finish`, which one on `BufferedParser` does not.
    `json_arguments`: the arguments are JSON in the text.
    `repairs`: lenient mode reads what is nearly JSON.
    `typed_values`: a value's type can be read without a schema; where XML elements hold plain text it cannot.
    `nested_values`: a value may be a list or an object.
    `any_names`: an argument's name may be any text, not only an identifier.
    `own_marks`: a text argument may hold the format's own marks.
    """
