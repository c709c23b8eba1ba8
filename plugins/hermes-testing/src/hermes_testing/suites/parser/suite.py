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

    Set `plugin`, `component` and `block_marks`, and implement `wire`; `answer`, `malformed_call`, `mark` and
    `reasoning_tags` have defaults.
    Capabilities that may be named in `lacks`:

    `text_before`, `text_after`: text may stand before, after the calls of a message. `many_calls`: a message may hold
    more than one call. `separate_calls`: each call has its own marks; items of a list do not. `end_mark`: a mark ends a
    call or the list of calls, and a call is recognised as complete without it. `block_marks`: two marks that only calls
    have stand around a call, or around all calls. `block_ends`: the mark that closes a block closes nothing else, so it
    may be written twice. `reasoning`: the format has reasoning, between `reasoning_tags`. `render`: messages can be
    written. `early_events`: a stream emits text, reasoning and calls before `finish`; one based on `BufferedParser`
    does not. `json_arguments`: the arguments are JSON in the text. `repairs`: lenient mode reads text that is nearly
    JSON. `typed_values`: a value's type can be read without a schema; not so for plain text in XML elements.
    `nested_values`: a value may be a list or an object. `any_names`: an argument's name may be any text, not only an
    identifier. `own_marks`: a text argument may contain the format's marks.
    """
