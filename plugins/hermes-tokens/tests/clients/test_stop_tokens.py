"""Stop tokens against the chat template: reports before a run, the text of a turn, and branches."""

from __future__ import annotations

import json
import logging

import pytest
from chatml_folder import TEMPLATE, chatml_folder
from small_tokenizers import trl_templates, trl_tokenizer
from token_rollout import CALL_TEXT, CALLED, RESULT, USER, open_rollout
from token_server import Sampled

from hermes_core.contracts.errors import ConfigError, ModelRequestError
from hermes_core.contracts.model import ToolSchemas
from hermes_parsers import get_parser
from hermes_tokens.append_rule.append import AppendRule
from hermes_tokens.clients.stop_tokens import branching_stops
from hermes_tokens.tokenizer import ChatTokenizer

LOGGER = "hermes_tokens.clients.rule_book"
OTHER = "<|endoftext|>"
CLOSE = "<|im_end|>"
PROTOCOLS = ("vllm", "sglang", "atropos")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatml_folder(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def lacking(tmp_path_factory):
    """A tokenizer whose stop tokens lack what the template writes."""
    return chatml_folder(tmp_path_factory.mktemp("lacking"), stops=[OTHER])


def stopping(folder, *texts, named=False):
    """Sample these texts in turn, each stopped at its last token; `named`: the server reports that token."""
    tokenizer, left = ChatTokenizer.load(folder), list(texts)

    def sample(_prompt, _sampling):
        ids = tokenizer.encode_scaffold(left.pop(0))
        logprobs = [-(1 + place) / 8 for place in range(len(ids))]
        return Sampled(ids=ids, logprobs=logprobs, finish_reason="stop", stop_id=ids[-1] if named else None)

    return sample


def parser_with(*stops):
    """Hermes' parser, of models that end their turns at these tokens."""
    return type("Parser", (type(get_parser("hermes")),), {"stop_tokens": stops})()


def id_of(folder, text):
    (found,) = ChatTokenizer.load(folder).encode_scaffold(text)
    return found


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


async def test_stop_tokens_that_the_template_does_not_write_are_warned_of_once_before_the_run(lacking, caplog):
    with caplog.at_level(logging.WARNING):
        async with open_rollout(lacking, stopping(lacking, f"one{OTHER}")) as rollout:
            await rollout.model.check()
            (message,) = warnings(caplog)
            await rollout.ask(USER)
    assert warnings(caplog) == [message]
    written, known = id_of(lacking, CLOSE), id_of(lacking, OTHER)
    assert f"expected turns to stop at '<|im_end|>' (id {written})" in message
    assert f"got '{OTHER}' (id {known})" in message
    assert f"add {written} to eos_token_id in generation_config.json" in message


async def test_where_no_branch_is_allowed_such_stop_tokens_are_an_error(lacking):
    async with open_rollout(lacking, [], allow_branches=False) as rollout:
        with pytest.raises(ConfigError, match="every such turn starts a branch") as raised:
            await rollout.model.check()
        assert f"stop_token_ids: [{id_of(lacking, CLOSE)}]" in (raised.value.hint or "")
        assert rollout.server.lines == []


@pytest.mark.parametrize("allowed", [None, True, False])
async def test_a_stop_at_the_templates_own_token_settles_it(lacking, caplog, allowed):
    sampling = {"stop_token_ids": [id_of(lacking, CLOSE)]}
    with caplog.at_level(logging.WARNING):
        async with open_rollout(lacking, [], allow_branches=allowed, sampling=sampling) as rollout:
            await rollout.model.check()
    assert warnings(caplog) == []


async def test_a_stop_token_of_the_sampling_that_the_template_does_not_write_is_named(folder, caplog):
    odd = id_of(folder, "<|im_start|>")
    sampling = {"stop_token_ids": [odd, id_of(folder, CLOSE)]}
    with caplog.at_level(logging.WARNING):
        async with open_rollout(folder, [], sampling=sampling) as rollout:
            await rollout.model.check()
    (message,) = warnings(caplog)
    assert f"a turn that ends with '<|im_start|>' (id {odd}) starts a branch" in message
    assert f"remove {odd} from stop_token_ids" in message


@pytest.mark.parametrize("allowed", [None, True, False])
@pytest.mark.parametrize("others", [[OTHER], [OTHER, CLOSE]])
async def test_an_additional_stop_that_the_template_never_writes_is_accepted(tmp_path, caplog, others, allowed):
    folder = chatml_folder(tmp_path, stops=[CLOSE])
    sampling = {"stop_token_ids": [id_of(folder, each) for each in others]}
    with caplog.at_level(logging.WARNING):
        async with open_rollout(folder, [], sampling=sampling, allow_branches=allowed) as rollout:
            await rollout.model.check()
    assert warnings(caplog) == []


@pytest.mark.parametrize("found", [395, 0, "151645", {5: 1}, ["5"], [5.0], [True], [None], [-1]])
async def test_stop_token_ids_that_are_not_a_list_of_ids_are_refused(folder, found):
    sampling = {"stop_token_ids": found}
    async with open_rollout(folder, ["one<|im_end|>"], sampling=sampling) as rollout:
        with pytest.raises(ConfigError, match="expected stop_token_ids to be a list of token ids"):
            await rollout.model.check()
    async with open_rollout(folder, ["one<|im_end|>"]) as rollout:
        with pytest.raises(ModelRequestError, match="expected stop_token_ids to be a list of token ids"):
            await rollout.ask(USER, **sampling)
        assert rollout.server.lines == []
        assert (await rollout.ask(USER)).content == "one"


@pytest.mark.parametrize("text", ["</tool_call>", "</think>", "fox"])
async def test_a_stop_at_a_text_token_starts_no_branch_and_gives_no_warning(folder, caplog, text):
    sampling = {"stop_token_ids": [ChatTokenizer.load(folder).encode_scaffold(text)[-1]]}
    with caplog.at_level(logging.WARNING):
        async with open_rollout(folder, [], sampling=sampling, allow_branches=False) as rollout:
            await rollout.model.check()
    assert warnings(caplog) == []


@pytest.mark.parametrize("name", sorted(trl_templates()))
def test_a_model_that_stops_where_its_template_does_has_nothing_to_be_told(name):
    assert list(branching_stops(AppendRule(trl_tokenizer(name)), {})) == []


MORE = ({"role": "assistant", "content": "one"}, {"role": "user", "content": "More."})


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_turn_whose_stop_token_must_be_replaced_is_not_continued_where_no_branch_is_allowed(folder, protocol):
    sampler = stopping(folder, f"one{OTHER}", f"two{OTHER}")
    async with open_rollout(folder, sampler, protocol=protocol, allow_branches=False) as rollout:
        await rollout.ask(USER)
        with pytest.raises(ModelRequestError, match="allow_branches is false") as raised:
            await rollout.ask(USER, *MORE)
        assert f"'{OTHER}' (id {id_of(folder, OTHER)})" in raised.value.message
        assert "--no-allow-branches" in (raised.value.hint or "")
        assert not raised.value.fatal
        (sample,) = rollout.session.samples()
        assert sample.reason == ""
        assert rollout.check().trained == rollout.check().sampled


@pytest.mark.parametrize("stops", [(), ("<|im_start|>",)], ids=["of the tokenizer", "of the sampling"])
async def test_by_default_a_stop_token_that_gives_way_begins_a_branch(folder, stops):
    stop = stops[0] if stops else OTHER
    sampling = {"stop_token_ids": [id_of(folder, each) for each in stops]}
    sampler = stopping(folder, f"one{stop}", "two<|im_end|>")
    async with open_rollout(folder, sampler, sampling=sampling) as rollout:
        await rollout.ask(USER, **sampling)
        await rollout.ask(USER, *MORE, **sampling)
        assert [sample.reason for sample in rollout.session.samples()] == ["", "junction"]
        assert "one<|im_end|>\n" in rollout.text(1)
        assert rollout.check().trained == rollout.check().sampled


async def test_a_turn_that_ends_as_the_template_writes_it_continues_where_no_branch_is_allowed(folder):
    async with open_rollout(
        folder, stopping(folder, "one<|im_end|>", "two<|im_end|>"), allow_branches=False
    ) as rollout:
        await rollout.ask(USER)
        await rollout.ask(USER, *MORE)
        assert len(rollout.session.samples()) == 1
        assert rollout.session.exactness().is_exact


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("named", [True, False], ids=["named by the server", "not named"])
@pytest.mark.parametrize("stop", [CLOSE, OTHER, "<|im_start|>"])
async def test_the_text_of_a_stop_token_is_in_no_reply(lacking, protocol, named, stop):
    sampler = stopping(lacking, f"It is.{stop}", named=named)
    async with open_rollout(lacking, sampler, protocol=protocol) as rollout:
        assert (await rollout.ask(USER)).content == "It is."


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("named", [True, False], ids=["named by the server", "not named"])
async def test_a_mark_that_a_turn_stops_at_stays_in_its_text_and_in_one_sample(folder, protocol, named):
    sampling = {"stop_token_ids": [id_of(folder, "</tool_call>")]}
    sampler = stopping(folder, CALL_TEXT, "done<|im_end|>", named=named)
    async with open_rollout(folder, sampler, protocol=protocol, sampling=sampling, allow_branches=False) as rollout:
        assert (await rollout.ask(USER, **sampling)).content == CALL_TEXT
        await rollout.ask(USER, CALLED, RESULT, **sampling)
        assert len(rollout.session.samples()) == 1
        assert f"{CALL_TEXT}<|im_end|>\n" in rollout.text()
        assert rollout.check().trained == rollout.check().sampled


async def test_a_turn_that_was_cut_keeps_its_last_token(folder):
    tokenizer = ChatTokenizer.load(folder)
    ids = tokenizer.encode_scaffold("cut here<|im_start|>")

    def sample(_prompt, _sampling):
        return Sampled(ids=ids, logprobs=[-0.5] * len(ids), finish_reason="length")

    async with open_rollout(folder, sample) as rollout:
        assert (await rollout.ask(USER)).content == "cut here<|im_start|>"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_stop_tokens_of_a_family_are_requested_beside_the_runs_own(lacking, protocol, caplog):
    close, mark = id_of(lacking, CLOSE), id_of(lacking, "</tool_call>")
    sampler = stopping(lacking, "one<|im_end|>", "two<|im_end|>")
    with caplog.at_level(logging.WARNING):
        async with open_rollout(
            lacking, sampler, protocol=protocol, parser=parser_with(CLOSE, OTHER, "<|eot_id|>"), allow_branches=False
        ) as rollout:
            await rollout.model.check()
            assert (await rollout.ask(USER, stop_token_ids=[mark])).content == "one"
            await rollout.ask(USER, *MORE)
            assert [line["sampling"]["stop_token_ids"] for line in rollout.server.lines] == [[mark, close], [close]]
            assert rollout.session.exactness().is_exact
    assert warnings(caplog) == []


async def test_stop_tokens_that_the_tokenizer_already_stops_at_are_not_requested(folder):
    async with open_rollout(folder, ["one<|im_end|>"], parser=parser_with(CLOSE, OTHER, "<|eot_id|>")) as rollout:
        await rollout.ask(USER)
        assert "stop_token_ids" not in rollout.server.lines[0]["sampling"]


async def test_a_familys_stop_token_that_sets_its_calls_apart_stays_in_the_text(folder):
    """Apertus ends a turn by the mark behind its calls."""
    sampler = stopping(folder, CALL_TEXT, named=True)
    async with open_rollout(folder, sampler, parser=parser_with("</tool_call>")) as rollout:
        assert (await rollout.ask(USER)).content == CALL_TEXT


async def test_a_mark_that_the_tokenizer_stops_at_stays_in_the_text_too(tmp_path):
    folder = chatml_folder(tmp_path, stops=[CLOSE, OTHER, "</tool_call>"])
    async with open_rollout(
        folder, stopping(folder, CALL_TEXT, "done<|im_end|>", named=True), allow_branches=False
    ) as rollout:
        assert (await rollout.ask(USER)).content == CALL_TEXT
        await rollout.ask(USER, CALLED, RESULT)
        assert len(rollout.session.samples()) == 1
        assert f"{CALL_TEXT}<|im_end|>\n" in rollout.text()
        assert rollout.session.exactness().is_exact


async def test_a_stop_token_of_one_request_gives_way_as_one_of_the_run_does(folder):
    sampler = stopping(folder, "one<|im_start|>", "two<|im_end|>")
    async with open_rollout(folder, sampler) as rollout:
        await rollout.ask(USER, stop_token_ids=[id_of(folder, "<|im_start|>")])
        await rollout.ask(USER, *MORE)
        assert [sample.reason for sample in rollout.session.samples()] == ["", "junction"]
        assert "one<|im_end|>\n" in rollout.text(1)
        assert rollout.check().trained == rollout.check().sampled


async def test_a_stop_token_of_one_request_is_refused_where_no_branch_is_allowed(folder):
    async with open_rollout(folder, stopping(folder, "one<|im_start|>"), allow_branches=False) as rollout:
        await rollout.ask(USER, stop_token_ids=[id_of(folder, "<|im_start|>")])
        with pytest.raises(ModelRequestError, match="allow_branches is false"):
            await rollout.ask(USER, *MORE)


async def test_a_request_that_ignores_the_end_is_not_stopped_by_a_familys_tokens(lacking):
    async with open_rollout(lacking, ["one", "two"], parser=parser_with(CLOSE)) as rollout:
        await rollout.ask(USER, ignore_eos=True)
        assert "stop_token_ids" not in rollout.server.lines[0]["sampling"]


@pytest.mark.parametrize(("allowed", "asked"), [(None, True), (True, True), (False, False)])
async def test_a_familys_stop_token_that_the_template_does_not_write_is_requested_where_it_may_branch(
    lacking, allowed, asked, caplog
):
    """After Llama's <|eom_id|> a model makes up the tool's result; some of its templates never write that token."""
    close, odd = id_of(lacking, CLOSE), id_of(lacking, "<|im_start|>")
    sampler = stopping(lacking, "one<|im_end|>")
    parser = parser_with(CLOSE, "<|im_start|>")
    with caplog.at_level(logging.WARNING):
        async with open_rollout(lacking, sampler, parser=parser, allow_branches=allowed) as rollout:
            await rollout.model.check()
            await rollout.ask(USER)
            wanted = {close, odd} if asked else {close}
            assert set(rollout.server.lines[0]["sampling"]["stop_token_ids"]) == wanted
    assert warnings(caplog) == []


def with_template_for_tools(path, change):
    """A tokenizer's folder with a different template for conversations with tools."""
    folder = chatml_folder(path, stops=[CLOSE])
    named = [{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": change(TEMPLATE)}]
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": CLOSE, "chat_template": named}))
    return folder


TOOL_TEMPLATES = {
    "its stop token": (lambda text: text.replace(CLOSE, OTHER), "expected turns to stop at '<|endoftext|>'"),
    "its results": (
        lambda text: text.replace("{{ message.content }}\n</tool_response>", "</tool_response>"),
        "a chat template with support for tool results",
    ),
}


@pytest.mark.parametrize("fault", TOOL_TEMPLATES)
async def test_a_template_for_tools_alone_is_tried_before_the_run_too(tmp_path, caplog, fault):
    change, words = TOOL_TEMPLATES[fault]
    folder = with_template_for_tools(tmp_path, change)
    with caplog.at_level(logging.WARNING):
        async with open_rollout(folder, stopping(folder, "one<|im_end|>"), allow_branches=False) as rollout:
            await rollout.model.check()
            (message,) = warnings(caplog)
            assert "a conversation with tools will be refused" in message
            assert words in message
            assert (await rollout.ask(USER, tools=ToolSchemas.of([]))).content == "one"
            with pytest.raises(ConfigError, match=words):
                await rollout.ask(USER)


async def test_a_correct_template_for_tools_alone_is_accepted(tmp_path, caplog):
    folder = with_template_for_tools(tmp_path, lambda text: text.replace("Tools:", "You may call:"))
    with caplog.at_level(logging.WARNING):
        async with open_rollout(folder, [], allow_branches=False) as rollout:
            await rollout.model.check()
    assert warnings(caplog) == []
