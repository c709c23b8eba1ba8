"""Reading chat completions in the shapes that servers really send."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.contracts.errors import ModelReplyError
from hermes_core.contracts.model import Conversation, Usage
from hermes_models.clients.replies import read_reply


def read(message, *, conversation=(), **fields):
    talk = Conversation(conversation)
    data = {"choices": [{"message": message, **fields}]}
    return read_reply(data, sent=talk.json_array(), number=len(talk), body=json.dumps(data).encode())


def call(name="terminal", arguments="{}", **fields):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}


@pytest.mark.parametrize(
    ("message", "content", "reasoning"),
    [
        ({"content": "x"}, "x", None),
        ({"content": None}, None, None),
        ({}, None, None),
        ({"content": ""}, "", None),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}, "c", {"type": "image"}]},
            "abc",
            None,
        ),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"text": "a"}]}, "a", "hm"),
        ({"content": "x", "reasoning_content": "r"}, "x", "r"),
        ({"content": "x", "reasoning": "r"}, "x", "r"),
        ({"content": "x", "reasoning_content": None, "reasoning": "", "reasoning_details": None}, "x", None),
        (
            {"content": "x", "reasoning_details": [{"type": "t", "text": "a"}, {"text": "b"}, {"data": "enc"}, 3]},
            "x",
            "ab",
        ),
        ({"content": None, "refusal": "I will not."}, "I will not.", None),
    ],
)
def test_text_and_reasoning_are_found_wherever_servers_put_them(message, content, reasoning):
    reply = read(message)
    assert (reply.content, reply.reasoning) == (content, reasoning)


def test_very_many_parts_and_calls_are_read_in_one_pass():
    """Each part was compared with each other, and each call's id looked for from the beginning: minutes."""
    many = 20_000
    thoughts = [{"type": "thinking", "thinking": f"t{n} "} for n in range(many)]
    reply = read({"content": [*thoughts, *({"type": "text", "text": f"{n} "} for n in range(many))]})
    assert reply.content == "".join(f"{n} " for n in range(many))
    assert reply.reasoning == "".join(f"t{n} " for n in range(many))
    ids = [
        c.id
        for c in read({"tool_calls": [call(id=f"call_{many + n}") for n in range(many)] + [call()] * many}).tool_calls
    ]
    assert len(set(ids)) == 2 * many
    talk = [{"role": "tool", "tool_call_id": f"call_{n}", "content": "x" * 100} for n in range(many)]
    again = read({"tool_calls": [call(id=f"call_{n}") for n in range(many)]}, conversation=talk).tool_calls
    assert not {c.id for c in again} & {one["tool_call_id"] for one in talk}


def test_tool_calls_are_read_as_dictionaries_with_their_own_ids():
    """Peers' defect 7: calls came back in a shape on which reading the name was an AttributeError."""
    reply = read({"content": None, "tool_calls": [call("a", '{"x":1}', id="abc"), call("b", "", id="def")]})
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [("abc", "a", '{"x":1}'), ("def", "b", "")]


@pytest.mark.parametrize(
    ("given_arguments", "text"),
    [({"b": 1, "a": "é"}, '{"b":1,"a":"é"}'), (None, "{}"), ("not json", "not json"), ([1], "[1]")],
)
def test_arguments_that_are_not_text_are_serialised_and_text_is_left_alone(given_arguments, text):
    assert read({"tool_calls": [call(arguments=given_arguments)]}).tool_calls[0].arguments == text


def test_missing_and_repeated_ids_are_replaced_by_short_stable_ones():
    """hermes-agent's defect: random ids went into the prompt and made it irreproducible."""
    message = {"tool_calls": [call(), call(id=""), call(id="x"), call(id="x"), call(id=7)]}
    first, again = read(message), read(message)
    assert [c.id for c in first.tool_calls] == ["call_0", "call_1", "x", "call_3", "call_4"]
    assert first == again


def test_an_id_of_an_earlier_turn_is_not_used_again():
    """Some servers count from zero in every turn."""
    earlier = [
        {"role": "user", "content": 'the text "tool_call_id":"free" is no id'},
        {"role": "assistant", "tool_calls": [call(id="call_0")]},
        {"role": "tool", "tool_call_id": "call_0", "content": ""},
    ]
    reply = read({"tool_calls": [call(id="call_0"), call(id="free")]}, conversation=earlier)
    assert [c.id for c in reply.tool_calls] == ["call_3", "free"]


@given(
    st.lists(
        st.lists(st.sampled_from([None, "", "a", "call_0", "call_3", "call_5"]), min_size=1, max_size=4), max_size=6
    )
)
@settings(max_examples=60, deadline=None)
def test_ids_are_unique_over_a_whole_conversation(turns):
    talk = Conversation([{"role": "user", "content": "go"}])
    seen = []
    for ids in turns:
        reply = read({"tool_calls": [call(id=given_id) for given_id in ids]}, conversation=talk.messages)
        talk.append({"role": "assistant", "content": None})
        for requested in reply.tool_calls:
            talk.append({"role": "tool", "tool_call_id": requested.id, "content": "ok"})
            seen.append(requested.id)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("tool_calls", [None, [], ()])
def test_no_calls_come_in_several_shapes(tool_calls):
    assert read({"content": "x", "tool_calls": tool_calls}).tool_calls == ()


def test_a_call_without_a_name_is_left_for_the_model_to_hear_about():
    assert read({"tool_calls": [call(name=None)]}).tool_calls[0].name == ""


@pytest.mark.parametrize(
    ("fields", "tool_calls", "finish"),
    [
        ({"finish_reason": "length"}, [call()], "length"),
        ({"finish_reason": None}, [call()], "tool_calls"),
        ({}, [], "stop"),
        ({"finish_reason": "abort"}, [], "abort"),
    ],
)
def test_the_finish_reason_is_the_servers_own_word(fields, tool_calls, finish):
    """Peers' defect 5: the reason was overwritten, which made truncation invisible."""
    assert read({"tool_calls": tool_calls}, **fields).finish_reason == finish


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": None}, {"prompt_tokens": "7"}])
def test_usage_that_is_missing_or_odd_counts_nothing(usage):
    data = {"choices": [{"message": {"content": "x"}}], "usage": usage}
    assert read_reply(data, sent=b"[]", number=0).usage == Usage()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "tool_calls", "function", "name", "arguments", "text", "usage"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
@settings(max_examples=150, deadline=None)
def test_any_json_is_a_reply_or_a_reply_error(data):
    for candidate in (data, {"choices": [data]}, {"choices": [{"message": data}]}):
        try:
            reply = read_reply(candidate, sent=b"[]", number=0)
        except ModelReplyError:
            continue
        assert reply.content is None or isinstance(reply.content, str)
