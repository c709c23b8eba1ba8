"""`hermes-core parsers`: list, detect, try."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest

from hermes_core.cli import main
from hermes_core.cli.argument_parser import CommandParser
from hermes_core.contracts.errors import BrokenComponentError, ConfigError, UnknownComponentError, UserError
from hermes_core.discovery import PluginSettings
from hermes_parsers.cli.parsers import ParsersCommand
from hermes_parsers.cli.screen import Screen

TWO = (
    "Let me look.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": }}\n</tool_call>'
)
HERMES_TEMPLATE = r"""{{ '<tool_call>\n{"name": "' + n + '", "arguments": ' + a + '}\n</tool_call>' }}"""
MISTRAL_TEMPLATE = "{{ '[TOOL_CALLS]' + calls }}"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]

LOCAL_PLUGIN = """
from hermes_core.contracts.parsing import BufferedParser
from hermes_core.hookspecs import hookimpl
from hermes_core.specs import ParserSpec


class Raises(BufferedParser):
    def parse(self, text, tools=None, mode="strict"):
        raise ZeroDivisionError("never mind")

    def render(self, message):
        raise ValueError("no")


@hookimpl
def hermes_parsers():
    return [
        ParserSpec(name="raises", summary="Raises.", target="{module}:Raises"),
        ParserSpec(name="absent", summary="Cannot.", target="{module}:Raises", requires=("bin:no-such-bin",)),
    ]


@hookimpl
def hermes_parser_for(model_id):
    return "raises" if model_id == "local/model" else None
"""


@pytest.fixture
def parsers(capsys, monkeypatch):
    """Run `hermes-core parsers …` and return the exit status, stdout and stderr."""

    def run(*words, stdin=b"", extra=(), allow=("hermes-parsers",)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        command = ParsersCommand()
        parser = CommandParser(prog="hermes-core parsers")
        command.configure(parser)
        arguments = parser.parse_args([str(word) for word in words])
        arguments.plugin_settings = PluginSettings(allow=allow, extra=tuple(map(str, extra)))
        status = command.run(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "localparsers.py"
    path.write_text(LOCAL_PLUGIN.replace("{module}", path.stem))
    return path


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "answer.txt"
    path.write_text(TWO, encoding="utf-8")
    return path


class TestList:
    def test_a_parser_is_listed_once_with_the_other_names_it_goes_by(self, parsers):
        status, out, _ = parsers("list", "--json")
        assert status == 0
        by_name = {parser["name"]: parser for parser in json.loads(out)["parsers"]}
        assert {"qwen", "qwen25"} <= set(by_name["hermes"]["aliases"])
        assert "qwen" not in by_name
        assert by_name["hermes"]["plugin"] == "hermes-parsers:parsers"
        assert by_name["hermes"]["summary"]

    def test_parsers_of_other_plugins_are_listed_with_what_they_lack(self, parsers, plugin):
        _, out, _ = parsers("list", "--json", extra=[plugin])
        found = {parser["name"]: parser for parser in json.loads(out)["parsers"]}
        assert found["raises"]["plugin"] == "local:localparsers"
        assert (found["raises"]["state"], found["absent"]["state"]) == ("declared", "unavailable")
        assert "no-such-bin" in found["absent"]["reason"]

    def test_a_person_reads_names_summaries_and_who_brings_them(self, parsers):
        status, out, _ = parsers("list")
        assert status == 0
        lines = out.splitlines()
        assert lines[0] == "hermes-parsers:parsers"
        assert any(line.split()[0] == "hermes" and "JSON in <tool_call>" in line for line in lines)
        assert any(line.strip().startswith("also: qwen") for line in lines)

    def test_a_name_of_two_plugins_is_reported_as_a_conflict(self, parsers, tmp_path):
        path = tmp_path / "rival.py"
        path.write_text(
            LOCAL_PLUGIN.replace("{module}", "rival").replace('name="raises"', 'name="hermes"'), encoding="utf-8"
        )
        _, out, _ = parsers("list", "--json", extra=[path])
        (conflict,) = json.loads(out)["conflicts"]
        assert (conflict["name"], len(conflict["plugins"])) == ("hermes", 2)
        assert "CONFLICT parser:hermes" in parsers("list", extra=[path])[1]


class TestDetect:
    @pytest.fixture
    def folder(self, tmp_path):
        path = tmp_path / "model"
        path.mkdir()
        return path

    def test_a_template_file_is_read(self, parsers, tmp_path):
        path = tmp_path / "chat_template.jinja"
        path.write_text(HERMES_TEMPLATE)
        status, out, _ = parsers("detect", path)
        assert status == 0
        assert out.startswith("hermes  by the template ")
        assert "<tool_call>  line 1" in out

    def test_a_template_comes_from_standard_input(self, parsers):
        status, out, _ = parsers("detect", "-", "--json", stdin=HERMES_TEMPLATE.encode())
        assert status == 0
        assert json.loads(out)["template"]["parser"] == "hermes"

    def test_a_tokenizer_config_is_read_and_the_template_for_tools_preferred(self, parsers, tmp_path):
        path = tmp_path / "tokenizer_config.json"
        both = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": HERMES_TEMPLATE}]
        for template in (HERMES_TEMPLATE, both):
            path.write_text(json.dumps({"chat_template": template}))
            status, out, _ = parsers("detect", path, "--json")
            assert (status, json.loads(out)["template"]["parser"]) == (0, "hermes")
        assert json.loads(out)["template"]["source"].endswith("(tool_use)")

    def test_a_models_folder_is_searched_and_the_file_of_its_own_goes_first(self, parsers, folder):
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": HERMES_TEMPLATE}))
        _, out, _ = parsers("detect", folder, "--json")
        assert json.loads(out)["template"]["parser"] == "hermes"
        (folder / "chat_template.jinja").write_text(MISTRAL_TEMPLATE)
        _, out, _ = parsers("detect", folder, "--json")
        assert json.loads(out)["template"]["parser"] == "mistral"

    def test_a_checkpoint_that_describes_its_own_output_is_pointed_out(self, parsers, folder):
        for key in ("response_template", "response_schema"):
            config = {"chat_template": HERMES_TEMPLATE, key: {"fields": {}}}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            assert "describes its own output" in parsers("detect", folder)[1]
            assert json.loads(parsers("detect", folder, "--json")[1])["template"]["has_response_template"] is True

    def test_a_template_that_cannot_be_told_exits_1_with_what_comes_near(self, parsers):
        status, out, _ = parsers("detect", "-", stdin=b"<tool_call>")
        assert status == 1
        assert out.startswith("cannot tell")
        assert "hermes: lacks the mark" in out

    def test_a_template_without_calls_is_said_to_have_none(self, parsers):
        status, out, _ = parsers("detect", "-", stdin=b"{{ messages }}")
        assert status == 1
        assert "perhaps the model cannot call tools" in out

    def test_a_model_is_known_by_its_name(self, parsers):
        status, out, _ = parsers("detect", "--model", "Qwen/Qwen3-8B")
        assert (status, out) == (0, "hermes  for the model Qwen/Qwen3-8B\n")

    def test_a_model_nobody_knows_exits_1_and_points_to_its_template(self, parsers):
        status, out, _ = parsers("detect", "--model", "acme/unheard-of")
        assert status == 1
        assert "cannot tell" in out
        assert "parsers detect FOLDER" in out

    def test_other_plugins_are_asked_about_a_model(self, parsers, plugin):
        _, out, _ = parsers("detect", "--model", "local/model", "--json", extra=[plugin])
        assert json.loads(out)["model"] == {"id": "local/model", "parser": "raises", "installed": True}

    def test_a_model_and_its_template_may_disagree(self, parsers):
        status, out, _ = parsers("detect", "-", "--model", "Qwen/Qwen3-8B", stdin=MISTRAL_TEMPLATE.encode())
        assert status == 1
        assert "they disagree" in out

    def test_two_names_of_one_parser_are_no_disagreement(self, parsers, plugin):
        plugin.write_text(
            plugin.read_text().replace('name="absent"', 'name="hermes"').replace('"bin:no-such-bin",', "")
        )
        _, out, _ = parsers("detect", "-", "--model", "local/model", "--json", stdin=HERMES_TEMPLATE.encode())
        assert "agree" not in json.loads(out)
        words = ("detect", "-", "--model", "local/model")
        status, out, _ = parsers(*words, stdin=HERMES_TEMPLATE.encode(), extra=[plugin], allow=())
        assert (status, out.splitlines()[-1]) == (0, "both agree")

    def test_nothing_to_look_at_is_an_error(self, parsers):
        with pytest.raises(UserError, match="--model ID"):
            parsers("detect")

    @pytest.mark.parametrize("content", ["{}", '{"chat_template": null}', '{"chat_template": [1]}'])
    def test_settings_without_a_template_are_an_error(self, parsers, tmp_path, content):
        path = tmp_path / "tokenizer_config.json"
        path.write_text(content)
        with pytest.raises(UserError, match="no chat_template"):
            parsers("detect", path)

    def test_a_folder_without_a_template_and_a_missing_file_are_errors(self, parsers, folder):
        with pytest.raises(UserError, match="has no chat template"):
            parsers("detect", folder)
        with pytest.raises(UserError, match="No such file"):
            parsers("detect", folder / "absent.jinja")


class TestTry:
    def test_segments_attempts_and_calls_are_shown(self, parsers, text_file):
        status, out, _ = parsers("try", "hermes", text_file)
        assert status == 0
        assert out.startswith("hermes (strict): 1 call of 2 attempts\n")
        assert "| Let me look." in out
        assert "invalid_json" in out
        assert '{"name": "weather", "arguments": {"city": "Köln"}, "id": ' in out

    def test_json_holds_the_whole_result(self, parsers, text_file):
        status, out, _ = parsers("try", "hermes", text_file, "--json")
        found = json.loads(out)
        assert status == 0
        assert "".join(segment["raw"] for segment in found["segments"]) == TWO
        assert [attempt["status"] for attempt in found["attempts"]] == ["ok", "invalid_json"]
        assert json.loads(found["calls"][0]["arguments"]) == {"city": "Köln"}
        assert (found["parser"], found["mode"]) == ("hermes", "strict")

    def test_a_text_comes_from_standard_input(self, parsers):
        assert parsers("try", "hermes", stdin=TWO.encode())[1].startswith("hermes (strict): 1 call of 2 attempts")
        assert parsers("try", "hermes", "-", stdin=b"")[1] == "hermes (strict): 0 calls of 0 attempts\n"

    def test_lenient_repairs_and_says_so(self, parsers):
        text = b'<tool_call>\n{"name": "f", "arguments": {"a": 1,}}\n</tool_call>'
        assert "0 calls of 1 attempt\n" in parsers("try", "hermes", stdin=text)[1]
        out = parsers("try", "hermes", "--lenient", stdin=text)[1]
        assert "hermes (lenient): 1 call of 1 attempt" in out
        assert "repaired" in out

    @pytest.mark.parametrize("tools", [TOOLS, {"tools": TOOLS}, [TOOLS[0]["function"]]])
    def test_tools_are_read_in_the_forms_they_are_kept_in(self, parsers, tmp_path, tools):
        path = tmp_path / "tools.json"
        path.write_text(json.dumps(tools))
        text = b'<tool_call>{"name": "weather"}</tool_call><tool_call>{"name": "wether"}</tool_call>'
        out = json.loads(parsers("try", "hermes", "--tools", path, "--json", stdin=text)[1])
        assert [attempt["status"] for attempt in out["attempts"]] == ["ok", "unknown_tool"]

    @pytest.mark.parametrize("content", ["[1]", '"tools"', "{", '{"tools": 1}'])
    def test_what_is_no_list_of_tools_is_an_error_that_shows_one(self, parsers, tmp_path, content):
        path = tmp_path / "tools.json"
        path.write_text(content)
        with pytest.raises(UserError, match='"type": "function"'):
            parsers("try", "hermes", "--tools", path)

    def test_options_are_handed_to_the_parser(self, parsers, tmp_path):
        path = tmp_path / "optional.py"
        path.write_text(
            "import pydantic\n"
            "from hermes_core.contracts.parsing import BufferedParser, ParseResult\n"
            "from hermes_core.hookspecs import hookimpl\n"
            "from hermes_core.specs import ParserSpec\n"
            "class Echo(BufferedParser):\n"
            "    class Options(pydantic.BaseModel):\n"
            "        greeting: str\n"
            "    def __init__(self, options):\n"
            "        self.greeting = options.greeting\n"
            "    def parse(self, text, tools=None, mode='strict'):\n"
            "        return ParseResult(content=self.greeting)\n"
            "    def render(self, message):\n"
            "        raise ValueError('no')\n"
            "@hookimpl\n"
            "def hermes_parsers():\n"
            "    return [ParserSpec(name='echo', summary='Echoes.', target='optional:Echo')]\n"
        )
        out = parsers("try", "echo", "--json", "--options", '{"greeting": "hi"}', extra=[path])[1]
        assert json.loads(out)["content"] == "hi"
        with pytest.raises(ConfigError, match="greeting is missing"):
            parsers("try", "echo", extra=[path])

    @pytest.mark.parametrize("text", ["[1]", "{"])
    def test_options_that_are_no_json_object_are_refused(self, parsers, text):
        with pytest.raises(ConfigError, match="--options: expected a JSON object, got "):
            parsers("try", "hermes", "--options", text)

    def test_a_stream_shows_its_events_and_that_the_result_is_the_same(self, parsers, text_file):
        status, out, _ = parsers("try", "hermes", text_file, "--stream", "7")
        assert status == 0
        assert "stream of 23 pieces" in out
        assert "the result is the same as in one piece" in out
        found = json.loads(parsers("try", "hermes", text_file, "--stream", "7", "--json")[1])
        assert found["stream"]["is_equal"] is True
        assert [event["call"]["name"] for event in found["stream"]["events"] if event["call"]] == ["weather"]

    def test_options_may_stand_before_between_and_after_the_name_and_the_file(self, parsers, text_file):
        wanted = parsers("try", "--lenient", "--stream", "5", "hermes", text_file)
        assert parsers("try", "hermes", "--lenient", "--stream", "5", text_file) == wanted
        assert parsers("try", "hermes", text_file, "--lenient", "--stream", "5") == wanted

    def test_a_text_in_another_format_is_recognised_when_nothing_was_found(self, parsers):
        out = parsers("try", "longcat", stdin=TWO.encode())[1]
        assert "found no attempt to call a tool; the marks are those of hermes" in out
        assert "the marks" not in parsers("try", "qwen", stdin=b'Write <tool_call> and "name", "arguments".')[1]

    @pytest.mark.parametrize("size", ["0", "-1", "x"])
    def test_a_piece_has_at_least_one_character(self, parsers, size, capsys):
        with pytest.raises(SystemExit) as stop:
            parsers("try", "hermes", f"--stream={size}")
        assert stop.value.code == 2
        assert "at least 1" in capsys.readouterr().err

    def test_an_unknown_parser_is_an_error_that_names_what_is_near(self, parsers):
        with pytest.raises(UnknownComponentError, match="did you mean 'hermes'"):
            parsers("try", "hermse")

    def test_a_parser_that_raises_is_named_with_its_plugin(self, parsers, plugin):
        with pytest.raises(BrokenComponentError, match="'raises' of local:localparsers raised ZeroDivisionError"):
            parsers("try", "raises", stdin=b"x", extra=[plugin])

    def test_long_texts_are_cut_unless_all_is_wanted(self, parsers):
        text = "\n".join(map(str, range(500))).encode()
        out = parsers("try", "hermes", stdin=text)[1]
        assert "480 more lines; --full shows them" in out
        assert "| 499\n" in parsers("try", "hermes", "--full", stdin=text)[1]

    def test_bytes_that_are_not_utf_8_are_replaced_and_mentioned(self, parsers):
        status, out, err = parsers("try", "hermes", stdin=b"a\xffb")
        assert status == 0
        assert "| a\ufffdb" in out
        assert "not valid UTF-8" in err


class TestAsASubcommand:
    """Called by `hermes-core`, through a plugin that declares nothing but the command."""

    @pytest.fixture
    def hermes_core(self, tmp_path, monkeypatch):
        plugin = tmp_path / "command.py"
        plugin.write_text(
            "from hermes_core.hookspecs import hookimpl\n"
            "from hermes_core.specs import CommandSpec\n"
            "@hookimpl\n"
            "def hermes_cli_commands():\n"
            '    target = "hermes_parsers.cli.parsers:ParsersCommand"\n'
            '    return [CommandSpec(name="parsers", summary="Parsers.", target=target)]\n'
        )

        def run(*words, stdin=b""):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            return main(["-p", str(plugin), "parsers", *words], environ={"HERMES_PLUGINS": ""})

        return run

    def test_what_the_user_must_change_exits_2_with_the_remedy_on_stderr(self, hermes_core, capsys):
        assert hermes_core("try", "hermes") == 2
        assert hermes_core("detect") == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "admit hermes-parsers in HERMES_PLUGINS" in err
        assert "or --model ID" in err

    def test_a_format_whose_parser_is_not_installed_exits_1_and_is_named(self, hermes_core, capsys):
        assert hermes_core("detect", "-", stdin=HERMES_TEMPLATE.encode()) == 1
        out = capsys.readouterr().out
        assert out.startswith("hermes  by the template -\n  no installed parser has this name")

    def test_no_parser_at_all_is_said(self, hermes_core, capsys):
        assert hermes_core("list") == 0
        assert "no plugin declares a parser" in capsys.readouterr().out


class TestTerminal:
    HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08 \u202egnp.exe\u2028 \ud800 \x7f"

    def test_control_characters_of_the_model_are_shown_and_not_sent(self, parsers):
        call = json.dumps({"name": "f" + self.HOSTILE, "arguments": {"a": self.HOSTILE}}, ensure_ascii=False)
        text = f"{self.HOSTILE}<tool_call>{call}</tool_call><tool_call>{{{self.HOSTILE}".encode("utf-8", "replace")
        for options in ([], ["--stream", "3"], ["--lenient"], ["--full"], ["--json"]):
            _, out, _ = parsers("try", "hermes", *options, stdin=text)
            assert all(character.isprintable() or character == "\n" for character in out)

    def test_control_characters_of_a_template_and_a_model_name_are_not_sent(self, parsers):
        _, out, _ = parsers("detect", "-", "--model", self.HOSTILE[:-4], stdin=b"\x1b[2J[TOOL_CALLS]\x1b[0m")
        assert all(character.isprintable() or character == "\n" for character in out)

    @pytest.fixture
    def terminal(self):
        """A real terminal: what is written to the stream can be read from the other end."""
        master, slave = os.openpty()
        stream = os.fdopen(slave, "w", encoding="utf-8")

        def read():
            stream.flush()
            return os.read(master, 65536).decode()

        yield stream, read
        stream.close()
        os.close(master)

    def test_a_terminal_gets_colours(self, terminal):
        stream, read = terminal
        screen = Screen(stream, {"TERM": "xterm"})
        screen.line(screen.paint("ok", "good"))
        assert "\x1b[32mok\x1b[0m" in read()

    @pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
    def test_colours_are_left_out_where_they_are_not_wanted(self, terminal, environ):
        stream, read = terminal
        screen = Screen(stream, environ)
        screen.line(screen.paint("ok", "good"))
        assert read().strip() == "ok"

    def test_a_terminal_that_cannot_write_a_character_gets_its_escape(self):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        screen = Screen(stream, {})
        screen.line(screen.escape("Köln…"))
        stream.flush()
        assert stream.buffer.getvalue() == b"K\\xf6ln\\u2026\n"
