"""The forms of Kimi's ids that models write name a tool of the list, and become the standard form in the history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parser_reading import function_tool, kimi, meaning, read, statuses

from hermes_parsers import get_parser

ARGUMENTS = '{"command": "ls"}'


def tools(*names: str):
    return [function_tool(name, command={"type": "string"}) for name in names]


def call_of(written: str, *names: str):
    [call] = read("kimi_k2", kimi((written, ARGUMENTS)), *tools(*names)).calls
    assert call.wire_id == written
    return call.name, call.id


@pytest.mark.parametrize(
    "written",
    [
        *("functions_bash_2", "functions.bash_2", "functions-bash-2", "functions.bash.2", "functions_bash:2"),
        *("functions.bash2", "functions_bash2", "functions:bash:2", "function.bash:2", "functions.bash 2"),
        *("bash:2", "bash_2", "bash-2", "bash2", "functions.bash: 2", "functions.bash#2", "functions/bash/2"),
        *("Functions.bash:2", "tools.bash:2", "functions.Bash_2", "BASH:2", "`functions.bash:2`", "functions.bash():2"),
    ],
)
def test_an_id_in_a_form_that_models_write_names_the_tool_it_means(written: str):
    assert call_of(written, "bash", "list_dir", "now") == ("bash", "functions.bash:2")


@pytest.mark.parametrize(
    ("written", "names", "found"),
    [
        ("functions.bash5", ("bash", "bash5"), "bash5"),
        ("functions_bash_2", ("bash", "functions_bash_2"), "functions_bash_2"),
        ("functions_bash_2", ("bash", "bash_2"), "bash_2"),
        ("bash_2", ("bash", "bash_2"), "bash_2"),
        ("functions.bash2:1", ("bash", "bash2"), "bash2"),
        ("functions.tool12", ("tool", "tool1"), "tool1"),
        ("functions_list_dir_3", ("list", "list_dir", "dir"), "list_dir"),
        ("functions.mcp__a-b__c_0", ("mcp__a-b__c", "c"), "mcp__a-b__c"),
    ],
)
def test_a_tool_of_that_very_name_wins_and_then_the_longest(written: str, names: tuple[str, ...], found: str):
    assert call_of(written, *names)[0] == found


@pytest.mark.parametrize(
    ("written", "own"),
    [
        ("functions.bash:\N{ARABIC-INDIC DIGIT THREE}", "functions.bash:0"),
        ("functions_bash_99999999999999", "functions.bash:99999999999999"),
        ("functions.bash()", "functions.bash:0"),
    ],
)
def test_the_number_is_the_model_s_own_and_in_digits_that_its_template_has(written: str, own: str):
    assert call_of(written, "bash", "now") == ("bash", own)


def test_a_name_in_other_letters_means_a_tool_only_if_no_other_has_them():
    assert call_of("functions.BASH:0", "bash", "Bash")[0] == "BASH"
    assert call_of("functions.Bash:0", "bash", "Bash")[0] == "Bash"


@pytest.mark.parametrize(
    ("written", "name"),
    [("functions_bash_2", "bash"), ("functions.list_dir_3", "list_dir"), ("functions.bash5", "bash5"), ("a_1", "a_1")],
)
def test_without_tools_an_id_is_read_as_well_as_it_can_be(written: str, name: str):
    assert call_of(written)[0] == name


@pytest.mark.parametrize(
    "written",
    [
        *("functions_bash_2_3", "bash_2_3", "functions.bash:2:3", "bash:2:3", "functions.bash.2:3", "bash-2.3"),
        *("functions.bash #3", "functions.bash : 3", "bash # 3", "functions.bash:2 #3", "functions.bash #2 :3"),
        *("functions.functions.bash:3", "functions:functions_bash_2_3", "functions_bash:2_3", "functions.bash_1_2_3"),
    ],
)
def test_of_several_numbers_the_last_one_counts(written: str):
    assert call_of(written, "bash", "list_dir", "now") == ("bash", "functions.bash:3")


@pytest.mark.parametrize(
    ("written", "number"),
    [
        *(("functions:0", 0), ("functions.0", 0), ("functions_0", 0), ("functions-4", 4), ("functions0", 0)),
        *(("function.7", 7), ("functions.0:1", 1), ("functions: 3", 3), ("functions #3", 3), ("functions_2_3", 3)),
        *(("functions", 0), ("functions.", 0), ("function", 0), ("0", 0)),
    ],
)
def test_an_id_of_only_the_prefix_and_a_number_means_the_tool_that_takes_the_arguments(written: str, number: int):
    other = function_tool("now", zone={"type": "string"})
    [call] = read("kimi_k2", kimi((written, ARGUMENTS)), *tools("bash"), other).calls
    assert (call.name, call.id) == ("bash", f"functions.bash:{number}")
    undecided = read("kimi_k2", kimi((written, ARGUMENTS)), *tools("bash", "sh"))
    assert (undecided.calls, statuses(undecided)) == ((), ["missing_name"])


@given(
    st.sampled_from(["", "functions.", "functions_", "functions:", "function-", "functions.functions."]),
    st.sampled_from(["bash", "list_dir", "mcp__a-b__c", "tool12"]),
    st.lists(st.tuples(st.sampled_from([":", "_", "-", ".", " #", " : ", " ", "#"]), st.integers(0, 99)), max_size=3),
)
def test_a_tool_of_the_list_is_found_whatever_numbers_follow_it(prefix, name, numbers):
    written = prefix + name + "".join(f"{between}{number}" for between, number in numbers)
    number = numbers[-1][1] if numbers else 0
    assert call_of(written, "bash", "list_dir", "mcp__a-b__c", "tool12") == (name, f"functions.{name}:{number}")


def test_an_id_that_means_no_tool_of_the_list_is_flagged():
    text = kimi(("functions_other_2", ARGUMENTS))
    result = read("kimi_k2", text, *tools("bash"))
    assert (meaning(result)[0][0], statuses(result)) == ("other", ["unknown_tool"])


def test_an_id_of_another_service_gets_the_family_s_form():
    assert call_of("call_6b0e7c24f0c44f0d996b59e5", "bash") == ("bash", "functions.bash:0")


def test_two_calls_with_ids_that_mean_the_same_keep_apart():
    text = kimi(("functions_bash_2", ARGUMENTS), ("functions.bash:2", ARGUMENTS))
    first, second = read("kimi_k2", text, *tools("bash")).calls
    assert first.id == "functions.bash:2"
    assert second.id.startswith("functions.bash:")
    assert first.id != second.id


@pytest.mark.parametrize("written", ["functions_bash_2", "functions.bash:2", "bash:2", "functions-bash-2"])
def test_a_call_is_written_again_with_the_id_that_stood_on_the_wire(written: str):
    parser, text = get_parser("kimi_k2"), kimi((written, ARGUMENTS))
    result = parser.parse(text, tools("bash"))
    [call] = result.calls
    function = {"name": call.name, "arguments": call.arguments}
    message = {"tool_calls": [{"id": call.id, "wire_id": call.wire_id, "function": function}]}
    assert parser.render(result) == parser.render(message) == text


def test_an_id_that_reads_otherwise_without_tools_is_written_in_the_family_s_form():
    parser = get_parser("kimi_k2")
    function = {"name": "bash", "arguments": ARGUMENTS}
    message = {"tool_calls": [{"id": "functions.bash:5", "wire_id": "functions.bash5", "function": function}]}
    assert meaning(parser.parse(parser.render(message))) == [("bash", {"command": "ls"})]
