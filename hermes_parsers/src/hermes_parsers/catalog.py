"""The table of this package's parsers: names, and where each class is. A class is imported on first use."""

from __future__ import annotations

from typing import Final, NamedTuple


# A dataclass would cost a tenth of the time that importing a parser takes.
class Family(NamedTuple):
    """One wire format. The first name is ours; the others are the names in hermes-agent, vLLM and SGLang."""

    names: tuple[str, ...]
    target: str
    summary: str


def _family(names: str, target: str, summary: str) -> Family:
    return Family(names=tuple(names.split()), target=f"hermes_parsers.families.{target}", summary=summary)


FAMILIES: Final = (
    _family(
        "hermes qwen qwen25 qwen3_json qwen3 trinity granite4",
        "json.hermes:HermesParser",
        "Hermes 2 Pro and 3, Qwen2.5, QwQ, Qwen3, Granite 4: JSON in <tool_call>",
    ),
    _family("ernie45", "json.hermes:Ernie45Parser", "ERNIE 4.5: the same, the answer in <response>"),
    _family("longcat", "json.hermes:LongcatParser", "LongCat-Flash: JSON in <longcat_tool_call>"),
    _family("jamba", "json.jamba:JambaParser", "Jamba 1.5: a JSON array in <tool_calls>"),
    _family("hunyuan hunyuan_a13b", "json.jamba:HunyuanParser", "Hunyuan-A13B: a JSON array in <tool_calls>"),
    _family("granite", "json.granite:GraniteParser", "Granite 3: a JSON array after <|tool_call|> or <tool_call>"),
    _family("granite-20b-fc", "json.granite:GraniteFunctionCallingParser", "Granite 20B: JSON after <function_call>"),
    _family("phi4_mini_json phi4", "json.phi:PhiParser", "Phi-4-mini: functools and a JSON array"),
    _family("xlam", "json.xlam:XlamParser", "xLAM-2: a bare JSON array, also in a code fence"),
    _family(
        "llama3_json llama3 llama4_json llama4",
        "json.llama:LlamaParser",
        "Llama 3.1 to 4: bare JSON objects with parameters",
    ),
    _family("internlm", "json.internlm:InternlmParser", "InternLM2.5: JSON after <|action_start|><|plugin|>"),
    _family("interns1", "json.internlm:InternS1Parser", "Intern-S1: JSON after <|action_start|> <|plugin|>"),
    _family(
        "mistral", "special_tokens.mistral:MistralParser", "Mistral, Devstral, Magistral: all forms of [TOOL_CALLS]"
    ),
    _family(
        "deepseek_v3 deepseekv3",
        "special_tokens.deepseek:DeepseekV3Parser",
        "DeepSeek V3-0324, R1-0528: a name and fenced JSON between marks",
    ),
    _family(
        "deepseek_v31 deepseek_v3_1 deepseekv31",
        "special_tokens.deepseek:DeepseekV31Parser",
        "DeepSeek V3.1: a name and JSON between marks",
    ),
    _family(
        "kimi_k2 kimi",
        "special_tokens.kimi:KimiParser",
        "Kimi K2 and K2.5: an id with the name, and JSON, between marks",
    ),
    _family(
        "gpt-oss openai gpt_oss", "special_tokens.harmony:HarmonyParser", "gpt-oss: Harmony's channels and recipients"
    ),
    _family("dots", "xml.dots:DotsParser", "dots.llm: <invoke>, or JSON, in <dots_function_call>"),
    _family("pythonic", "pythonic.parser:PythonicParser", "Llama 3.2, ToolACE: [f(a='x'), g()]"),
    _family("llama4_pythonic", "pythonic.parser:Llama4PythonicParser", "Llama 4: the same, maybe in <|python_start|>"),
    _family("lfm2", "pythonic.lfm2:Lfm2Parser", "LFM2 and LFM2.5: a Python list in <|tool_call_start|>"),
    _family("olmo3", "pythonic.olmo3:Olmo3Parser", "Olmo 3: one Python call per line in <function_calls>"),
    _family("gemma4", "gemma.parser:GemmaParser", "Gemma 4: call:f{a:…} in <|tool_call>"),
    _family("functiongemma", "gemma.parser:FunctionGemmaParser", "FunctionGemma: call:f{a:…} in <start_function_call>"),
    _family(
        "qwen3_coder qwen3_xml step3p5 nanbeige",
        "xml.qwen3_coder:Qwen3CoderParser",
        "Qwen3-Coder, Qwen3.5, Nemotron 3, Step-3.5: <function=…> and <parameter=…> in <tool_call>",
    ),
    _family("qwen3_6 qwen3_8", "xml.qwen3_coder:Qwen36Parser", "Qwen3.6 and 3.8: the same, with JSON's words"),
    _family("step5", "xml.qwen3_coder:Step5Parser", "Step-5: the same, white space before a call is content"),
    _family("mimo", "xml.qwen3_coder:MimoParser", "MiMo: the same without line breaks, values verbatim"),
    _family("seed_oss", "xml.qwen3_coder:SeedOssParser", "Seed-OSS: the same in <seed:tool_call>"),
    _family("glm45 glm", "xml.glm:Glm45Parser", "GLM-4.5 and 4.6: <arg_key> and <arg_value>, one per line"),
    _family(
        "glm47 ling3 poolside_v1", "xml.glm:Glm47Parser", "GLM-4.7 and 5, Ling-3, Laguna: <arg_key> and <arg_value>"
    ),
    _family("hy_v3", "xml.glm:HunyuanV3Parser", "Hunyuan 3: <arg_key> and <arg_value> after <tool_sep>"),
    _family("hy_v4", "xml.glm:HunyuanV4Parser", "Hunyuan 4: <arg_key> and <arg_value> in <tool_calls>"),
    _family("minimax_m2 minimax-m2", "xml.minimax:MinimaxM2Parser", "MiniMax-M2: <invoke> in <minimax:tool_call>"),
    _family("minimax_m3 minimax-m3", "xml.minimax_m3:MinimaxM3Parser", "MiniMax-M3: nested tags after a special token"),
    _family("muse muse_glimmer musespark1x", "xml.minimax:MuseParser", "Muse: <atem:invoke> in <atem:function_calls>"),
    _family("minicpm5", "xml.minimax:Minicpm5Parser", 'MiniCPM5: <function name="…"> and <param name="…">'),
    _family(
        "deepseek_v32 deepseekv32 deepseek_dsml", "xml.dsml:DeepseekV32Parser", "DeepSeek-V3.2: DSML function_calls"
    ),
    _family("deepseek_v4 deepseekv4", "xml.dsml:DeepseekV4Parser", "DeepSeek-V4: DSML tool_calls"),
    _family("deepseek_v41 deepseekv41", "xml.dsml:DeepseekV41Parser", "DeepSeek-V4.1: DSML calls"),
    _family("step3", "xml.step3:Step3Parser", "Step-3: <steptml:invoke> in special tokens"),
    _family("kimi_k3", "xml.kimi_k3:KimiK3Parser", "Kimi K3: XTML, arguments with types"),
    _family(
        "cohere_command3",
        "special_tokens.cohere:CohereCommand3Parser",
        "Command A, Command R7B: a JSON array with tool_name in <|START_ACTION|>",
    ),
    _family(
        "cohere_command4",
        "special_tokens.cohere:CohereCommand4Parser",
        "Command A+, North: the same, the answer in <|START_TEXT|>",
    ),
    _family(
        "apertus apertus2509",
        "json.apertus:ApertusParser",
        "Apertus: an array of objects whose only key is the tool's name, in <|tools_prefix|>",
    ),
    _family(
        "gigachat3", "xml.gigachat:Gigachat3Parser", "GigaChat 3 and 3.1: JSON in a message of the role function call"
    ),
    _family("gigachat35", "xml.gigachat:Gigachat35Parser", "GigaChat 3.5: GCML tool_calls"),
    _family(
        "k2_horizon",
        "xml.k2_horizon:K2HorizonParser",
        "K2 Horizon: <ifm|arg_key> and <ifm|arg_value>, or JSON, in IFM tags",
    ),
    _family(
        "inkling",
        "special_tokens.inkling:InklingParser",
        "Inkling: JSON with args in a separate message, between marks",
    ),
    _family("plamo3", "special_tokens.plamo:Plamo3Parser", "PLaMo 3: a name and JSON between marks"),
    _family(
        "solar_open2",
        "special_tokens.solar:SolarOpen2Parser",
        "Solar Open 2: one <|tool_arg:start|> per line in <|tool_call:start|>",
    ),
    Family(
        names=("response_template", "hf"),
        target="hermes_parsers.declarative.component:ResponseTemplateParser",
        summary="Any model whose tokenizer_config.json has a response_template; needs a source",
    ),
)

BY_NAME: Final = {name: family for family in FAMILIES for name in family.names}
