"""Detecting the wire format from a chat template's text. The excerpts are written for this test; they contain the
marks.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_parsers.detection import detect

JSON_CALL = """{"name": "' + n + '", "arguments": ' + a + '}"""
TEMPLATES = {
    "hermes": r"{{ '<tool_call>\n" + JSON_CALL + r"\n</tool_call>' }}",
    "longcat": r"{{ '<longcat_tool_call>\n" + JSON_CALL + r"\n</longcat_tool_call>' }}",
    "dots": r"{{ '<dots_function_call>\n" + JSON_CALL + r"\n</dots_function_call>' }}",
    "mistral": "{{ '[TOOL_CALLS] [" + JSON_CALL + "]' }}",
    "llama3_json": """<|start_header_id|>assistant{{ '{"name": "' + n + '", ' }}{{ '"parameters": ' }}{{ a }}}""",
    "llama4_json": """<|header_start|>assistant{{ '{"name": "' + n + '", ' }}{{ '"parameters": ' }}{{ a }}}""",
    "pythonic": """<|start_header_id|>system: [func_name1(name=value), func_name2()]{{ tool_call.name + '(' -}}""",
    "llama4_pythonic": """<|header_start|>system: [func_name1(name=value)]{{ tool_call.name + '(' -}}""",
    "olmo3": "{{ '<function_calls>' + c.function.name + '(' + arguments + ')' + '</function_calls>' }}",
    "qwen3_coder": r"{{ '<tool_call>\n<function=' + n + '>\n<parameter=' + k + '>\n' + v + '\n</parameter>' }}",
    "mimo": "Values are preserved exactly as-is. {{ '<tool_call><function=' + n + '><parameter=' + k + '>' + v }}",
    "seed_oss": "{% set begin = '<seed:tool_call>' %}{{ begin + '<function=' + n + '><parameter=' + k + '>' }}",
    "deepseek_v3": r"{{'<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + n + '\n```json\n' + a + '<｜tool▁call▁end｜>'}}",
    "deepseek_v31": "{{'<｜tool▁call▁begin｜>' + n + '<｜tool▁sep｜>' + a + '<｜tool▁call▁end｜>'}}",
    "deepseek_v32": r"{% set dsml_token = '｜DSML｜' %}{{ '<' + dsml_token + 'function_calls>\n' }}",
    "deepseek_v4": r"{% set dsml_token = '｜DSML｜' %}{{ '<' + dsml_token + 'tool_calls>\n' }}",
    "deepseek_v41": r"{% set dsml_token = '｜DSML｜' %}{{ '<' + dsml_token + ' calls>\n<' + dsml_token + ' invoke' }}",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ a }}",
    "kimi_k3": "{{ '<|open|>call tool=' + n }}{{ '<|sep|>' }}{{ a }}{{ '<|close|>call' + '<|sep|>' }}",
    "glm45": "<tool_call>{{ n }}\n<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n</tool_call>",
    "glm47": "<tool_call>{{ n }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value></tool_call>",
    "minimax_m2": """{% set begin = '<minimax:tool_call>' %}{{ begin + '<invoke name="' + n + '">' }}""",
    "minimax_m3": """{% set ns = ']<]minimax[>[' %}{{ ns + '<tool_call>' + ns + '<invoke name="' + n + '">' }}""",
    "granite": "<|start_of_role|>assistant<|end_of_role|><|tool_call|>{{ calls | tojson }}",
    "granite4": r"<|start_of_role|>{{ '<tool_call>\n" + JSON_CALL + r"\n</tool_call>' }}",
    "granite-20b-fc": "{{ '<function_call> ' + call | tojson }}{{ '<function_response> ' + m.content }}",
    "internlm": r"""{{ "<|action_start|><|plugin|>\n" }}{{ call | tojson }}{{ "<|action_end|>" }}""",
    "interns1": r"""{{ "<|action_start|> <|plugin|>\n" }}{{ call | tojson }}{{ "<|action_end|>" }}""",
    "jamba": "<|bom|><|assistant|>{{ '<tool_calls>[" + JSON_CALL + "]</tool_calls><|eom|>' }}",
    "hunyuan": "{{ '<|extra_0|><tool_calls>[" + JSON_CALL + "]</tool_calls>' }}",
    "hy_v3": "{{ '<tool_calls><tool_call>' + n + '<tool_sep><arg_key>' + k + '</arg_key><arg_value>' + v }}",
    "phi4_mini_json": """Write functools[{"name": [name], "arguments": [JSON]}].""",
    "xlam": """Write [{"name": "tool_call_name", "arguments": {"arg1": "value1"}}].""",
    "gpt-oss": """{{ "<|start|>assistant to=functions." + n + "<|channel|>commentary json<|message|>" + a }}""",
    "lfm2": """{{ "<|tool_call_start|>[" + n + "(" + a + ")" + "]<|tool_call_end|>" }}""",
    "gemma4": "{{ '<|tool_call>call:' + n + '{' }}{{ a }}{{ '}<tool_call|>' }}",
    "functiongemma": "{{ '<start_function_call>call:' + n + '{' + a + '}<end_function_call>' }}",
    "muse": """{{ '<atem:function_calls>\n<atem:invoke name="' + n + '">\n' }}""",
    "muse_glimmer": """{{ raise_exception('Muse Glimmer wants a mapping') }}<atem:invoke name="{{ n }}">""",
    "step3": """{{ '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="' + n + '">' }}""",
    "minicpm5": """{{ '<function name="' + n + '">' }}{{ '<param name="' + k + '">' + v + '</param></function>' }}""",
    "hy_v4": "{{ '<tool_calls><tool_call>' + n + '<arg_key>' + k + '</arg_key><arg_value>' + v + '</arg_value>' }}",
    "cohere_command3": """<|START_ACTION|>[{"tool_name": {{ n }}]<|END_ACTION|><|START_RESPONSE|>{{ m.content }}""",
    "cohere_command4": """<|START_ACTION|>[{"tool_name": {{ n }}]<|END_ACTION|><|START_TEXT|>{{ m.content }}""",
    "apertus": """{% set begin = '<|tools_prefix|>' %}{{ begin + '[{"' + n + '": ' + a + '}]<|tools_suffix|>' }}""",
    "gigachat3": r"{% set sep = '<|role_sep|>\n' %}{{ message({'role': 'function call', 'content': a}) }}",
    "gigachat35": r"""{% set sep = '<|role_sep|>\n' %}'function call'{{ '<｜GCML｜invoke name="' ~ n ~ '">\n' }}""",
    "k2_horizon": r"{{ '<ifm|tool_call>' + n + '\n<ifm|arg_key>' + k + '</ifm|arg_key>\n<ifm|arg_value>' + v }}",
    "inkling": """{{ '<|message_model|>' + n + '<|content_invoke_tool_json|>{"name":' + n + ',"args":' + a }}""",
    "plamo3": "{{ '<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>' + n }}",
    "solar_open2": r"{{ '<|tool_call:start|>' + n + '\n<|tool_arg:start|>' + k + '<|tool_arg:value|>' + v }}",
}
FRAME = "{%- for m in messages %}\n<|im_start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}\n"


@pytest.mark.parametrize("wanted", TEMPLATES)
def test_every_format_is_told_by_the_marks_of_its_template(wanted):
    assert detect(FRAME + TEMPLATES[wanted]).name == wanted


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_evidence_says_where_the_marks_stand(name):
    template = FRAME + TEMPLATES[name]
    for evidence in detect(template).evidence:
        assert template.startswith(evidence.mark, evidence.start)
        assert evidence.line == template[: evidence.start].count("\n") + 1
        assert evidence.count == template.count(evidence.mark) > 0


@pytest.mark.parametrize("template", ["", FRAME, "{{ messages | tojson }}", "[INST] {{ m.content }} [/INST]"])
def test_a_template_without_calls_is_none_of_them_and_near_none(template):
    found = detect(template)
    assert (found.name, found.evidence, found.runners_up) == (None, (), ())


def test_two_formats_in_one_template_are_no_answer_and_both_are_named():
    """A template for models of two generations: it does not show which one is served."""
    found = detect(TEMPLATES["mistral"] + TEMPLATES["kimi_k2"])
    assert found.name is None
    assert {other.name: other.reason for other in found.runners_up if "fits" in other.reason} == {
        "mistral": "kimi_k2 fits as well",
        "kimi_k2": "mistral fits as well",
    }


def test_an_array_in_tool_calls_without_a_models_own_tokens_is_left_open():
    """Jamba, Hunyuan and others write the same text; Apriel-1.5's template is such a case."""
    found = detect("""{{ '<tool_calls>[{"name": "' + n + '", "arguments": ' + a }}]</tool_calls>""")
    assert found.name is None
    assert {other.name for other in found.runners_up} >= {"jamba", "hunyuan"}


def test_a_format_that_shares_its_tag_with_a_later_one_is_not_taken_for_it():
    """LongCat's later models write `<longcat_arg_key>`; the parser of the first models would read no calls."""
    found = detect("<longcat_tool_call>{{ n }}<longcat_arg_key>{{ k }}</longcat_arg_key></longcat_tool_call>")
    assert found.name is None
    assert [(other.name, other.reason) for other in found.runners_up] == [("longcat", "has the mark <longcat_arg_key")]


def test_a_mark_that_is_alone_names_the_runner_up_and_what_it_lacks():
    found = detect("A call begins with <tool_call> and ends with </tool_call>.")
    assert found.name is None
    reasons = {other.name: other.reason for other in found.runners_up}
    assert reasons["hermes"].startswith("lacks the mark ")
    (evidence,) = next(other.evidence for other in found.runners_up if other.name == "hermes")
    assert (evidence.mark, evidence.line) == ("<tool_call>", 1)


def test_what_a_comment_says_is_no_evidence():
    template = "{#- not as in [TOOL_CALLS],\n nor <|tool_call_start|> -#}\n" + TEMPLATES["hermes"]
    found = detect(template)
    assert found.name == "hermes"
    assert {evidence.line for evidence in found.evidence} == {3}


@pytest.mark.parametrize("text", ["{#", "{# [TOOL_CALLS", "{#" * 200_000, "#}" * 200_000, "{##}" * 100_000])
def test_comments_that_do_not_end_are_read_in_linear_time(text):
    """A pattern with a lazy repetition would need hours for the long ones."""
    assert detect(text).name is None
    assert detect(text + TEMPLATES["kimi_k2"]).name == "kimi_k2"


def test_keys_are_found_in_either_kind_of_quotes():
    single = r"""{{- "<tool_call>\n{\"name\": \"" + n + "\", \"arguments\": " + a + "}\n</tool_call>" }}"""
    assert detect(single).name == "hermes"


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_frame_around_a_call_does_not_matter(name):
    assert detect(TEMPLATES[name] + FRAME * 3).name == name


@given(st.text(max_size=300))
def test_any_text_is_answered(text):
    assert detect(text).name is None or detect(text).evidence


WITH_MARKS_OF_THEIR_OWN = [
    "mistral",
    "kimi_k2",
    "minimax_m2",
    "lfm2",
    "gemma4",
    "internlm",
    "phi4_mini_json",
    "longcat",
]


@given(st.sets(st.sampled_from(WITH_MARKS_OF_THEIR_OWN), min_size=2, max_size=4))
def test_several_formats_in_one_template_are_never_settled_silently(names):
    found = detect(FRAME.join(TEMPLATES[name] for name in sorted(names)))
    assert found.name is None
    assert {other.name for other in found.runners_up if other.reason.endswith("as well")} == names
