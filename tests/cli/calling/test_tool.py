"""`ekiden call` in scripts: no terminal, answers given beforehand, results for people and for programs."""

import base64
import json
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.cli.driving import FOLDER, SHOP, ekiden, eventually, running

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
AS_COMMAND = shlex.join([sys.executable, SHOP])
ORDER = {"name": "Aiko", "email": "a@example.com", "extras": ["meal"], "insured": True}


def result_of(*arguments: str, **settings: str) -> dict[str, Any]:
    done = ekiden("call", *arguments, "--json", **settings)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def text_of(*arguments: str) -> str:
    content = result_of(*arguments)["content"]
    return str(content[0]["text"])


def test_arguments_are_typed_by_the_tools_schema_unless_they_are_json() -> None:
    result = result_of(
        *(SHOP, "typed", "text=1", "number=2.5", "count=3", "flag=yes", "tags=a", "tags=b"),
        *('data={"x": [1]}', "either:=7"),
    )
    assert result["structuredContent"]["given"] == {
        "text": "1",
        "number": 2.5,
        "count": 3,
        "flag": True,
        "tags": ["a", "b"],
        "data": {"x": [1]},
        "either": 7,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["typed", "text=a", "count=many"], "argument 'count' must be a whole number, not 'many'"),
        (["tipped"], "the server has no tool 'tipped'; did you mean 'typed'?"),
    ],
)
def test_a_call_that_cannot_work_is_told_in_one_line(arguments: list[str], said: str) -> None:
    done = ekiden("call", SHOP, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ekiden: {said}\n")


# Answers


def test_a_question_without_a_terminal_fails_and_says_which_answer_is_lacking() -> None:
    done = ekiden("call", SHOP, "two_at_once", "--answer", "first=one")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "ekiden: no answer is given to 'And then?' (key 'second'; value: string), and there is no terminal "
        "to ask at. Give it with --answer 'KEY=VALUE' or --answers FILE.json, by key or by a part of the "
        "message\n"
    )


def test_answers_come_from_a_file_and_from_the_command_line(tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({"what": {**ORDER, "name": "Kenji"}, "First of": "file", "second": "file"}))
    assert text_of(SHOP, "two_at_once", "--answers", str(answers), "--answer", "second=line") == "file line"
    ordered = result_of(SHOP, "order", "--answers", str(answers))
    assert json.loads(ordered["content"][0]["text"])["name"] == "Kenji"


def test_models_and_roots_are_answered_too() -> None:
    planned = text_of(SHOP, "plan", "--answer", "sight=the deer", "--root", "/home/aiko")
    assert planned == "the deer in ['file:///home/aiko']"


# Targets


def test_a_server_in_a_file_prints_to_stderr() -> None:
    done = ekiden("call", SHOP, "chat")
    assert (done.returncode, done.stdout, done.stderr) == (0, "said\n", "printed in the server\n")


def test_a_command_is_a_target() -> None:
    assert text_of(AS_COMMAND, "confirm", "--answer", "sure=true") == "accept: True"


OFFICIAL = """
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("official")

class Sure(BaseModel):
    sure: bool

@server.tool()
async def confirm(ctx: Context) -> str:
    answer = await ctx.elicit("Are you sure?", Sure)
    return f"{answer.action}"

if __name__ == "__main__":
    server.run("stdio")
"""


def test_a_file_of_another_sdk_is_started_and_may_be_of_2025(tmp_path: Path) -> None:
    file = tmp_path / "official.py"
    file.write_text(OFFICIAL)
    call = ("call", str(file), "confirm", "--era", "legacy")
    answered = ekiden(*call, "--answer", "sure=yes", PYTHONWARNINGS="default")
    assert (answered.returncode, answered.stdout) == (0, "accept\n"), answered.stderr
    lacking = ekiden(*call, PYTHONWARNINGS="default")
    assert lacking.returncode == 2
    assert "no answer is given to 'Are you sure?' (sure: boolean)" in lacking.stderr


# Results


def test_a_list_of_objects_is_a_table() -> None:
    done = ekiden("call", SHOP, "rows")
    lines = [line.split() for line in done.stdout.splitlines() if line.strip() and "─" not in line]
    assert lines == [
        ["city", "celsius", "note"],
        ["Hakone", "9"],
        ["Tokyo", "18", "sunny"],
    ]


def test_pictures_and_sounds_are_saved_and_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "paint-1.png").write_bytes(b"mine")
    done = ekiden("call", SHOP, "paint", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Here they are.",
        "saved paint-2.png (image/png, 70 bytes)",
        "saved paint-1.wav (audio/wav, 4 bytes)",
    ]
    assert (tmp_path / "paint-1.png").read_bytes() == b"mine"
    assert (tmp_path / "paint-2.png").read_bytes() == base64.b64decode(PIXEL)


def test_a_tool_that_fails_has_exit_code_1() -> None:
    done = ekiden("call", SHOP, "fail")
    assert (done.returncode, done.stdout) == (1, "There is nothing left.\n")
    assert done.stderr == "The tool failed:\n"


def test_verbose_tells_of_each_round() -> None:
    done = ekiden("call", SHOP, "confirm", "--answer", "sure=true", "--verbose")
    first, asked, last = done.stderr.splitlines()
    assert first.startswith("round 1: ")
    assert ", 1 asked, state of " in first
    assert asked == "  sure: elicitation/create: Is that ]0;evil[31mred[0m all right?"
    assert last.startswith("round 2: ")
    assert last.endswith(" ms, the result")
    assert done.stdout == "accept: True\n"


def test_a_call_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    done = ekiden("call", SHOP, "take_long", f"marks={tmp_path}", "--timeout", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ekiden: there was no result within 1 seconds; the call was cancelled\n"
    assert (tmp_path / "cancelled").exists()


def test_an_interrupt_cancels_the_call_at_the_server(tmp_path: Path) -> None:
    at_once = shlex.join(warm.command(SHOP))  # After a while the command would say that it waits.
    with running(tmp_path / "log", "call", at_once, "take_long", f"marks={tmp_path}") as command:
        eventually((tmp_path / "began").exists, "the tool begins")
        assert command.stop(signal.SIGINT) == 130
        assert command.said == "ekiden: interrupted; the call was cancelled\n"
    eventually((tmp_path / "cancelled").exists, "the tool is cancelled")


def test_a_server_that_is_not_there_is_told() -> None:
    done = ekiden("call", "http://127.0.0.1:9/mcp", "anything")
    assert done.returncode == 1
    assert done.stderr.startswith("ekiden: Cannot connect to 127.0.0.1:9")
    assert ekiden("call", "nowhere.py", "anything").stderr == "ekiden: there is no file nowhere.py\n"


def test_a_server_in_a_package_finds_its_neighbours(tmp_path: Path) -> None:
    package = tmp_path / "store"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("HELLO = 'hello'")
    (package / "app.py").write_text(
        "from ekiden import Server\nfrom .words import HELLO\n\nserver = Server('store')\n\n\n"
        "@server.tool\nasync def greet() -> str:\n    return HELLO\n"
    )
    assert ekiden("call", str(package / "app.py"), "greet", cwd=FOLDER).stdout == "hello\n"


PAINTER = """
from pathlib import Path
from ekiden import Image, Server

server = Server("painter")

@server.tool
async def paint() -> Image:
    (Path(__file__).parent / "painted").touch()
    return Image(data=b"GIF89a", format="gif")
"""


def test_a_folder_that_does_not_exist_is_told_before_the_tool_is_called(tmp_path: Path) -> None:
    file = tmp_path / "painter.py"
    file.write_text(PAINTER)
    missing = tmp_path / "missing"
    done = ekiden("call", str(file), "paint", "--save-to", str(missing))
    said = f"ekiden: --save-to {missing}: there is no such folder\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    assert not (tmp_path / "painted").exists()


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ((), [None, None]),
        (("--env", "ONE=a=b", "--env", "TWO"), ["a=b", "2"]),
        (("--env", "ONE="), ["", None]),
    ],
)
def test_a_server_on_stdio_gets_the_variables_that_are_named(words: tuple[str, ...], seen: list[Any]) -> None:
    target = shlex.join(warm.command(str(FOLDER / "servers" / "environment.py")))
    done = ekiden("call", target, "variables", "names=ONE", "names=TWO", "--json", *words, TWO="2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["structuredContent"] == seen


@pytest.mark.parametrize(
    ("word", "said"),
    [("=x", "--env '=x' is not NAME=VALUE"), ("NOT_HERE", "--env NOT_HERE: there is no such variable here")],
)
def test_a_variable_that_cannot_be_given_is_told(word: str, said: str) -> None:
    done = ekiden("tools", "true", "--env", word)
    assert done.returncode == 2
    assert said in done.stderr
