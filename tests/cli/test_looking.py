"""The commands that look: lists, keys, tokens, help."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ekiden import Context, Server
from ekiden.cli import targets
from ekiden.server.sealing.keys import new_key
from ekiden.testing import ScriptedClient

from .driving import PATIENCE, SHOP, ekiden, running


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.strip() and "─" not in line]
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in lines]


def test_tools_are_listed_with_their_arguments() -> None:
    listed = cells(ekiden("tools", SHOP).stdout)
    assert listed[0] == ["Tool", "Arguments", "What it does"]
    assert next(row[1] for row in listed if row[0] == "take_long") == "marks=string"
    assert "[count=integer]" in next(row[1] for row in listed if row[0] == "typed")


def test_lists_are_json_for_programs() -> None:
    found = json.loads(ekiden("resources", SHOP, "--json").stdout)
    assert found["resources"][0]["uri"] == "shop://opening-hours"
    assert found["resourceTemplates"][0]["uriTemplate"] == "shop://{item}"


def test_prompts_are_listed_with_their_arguments() -> None:
    row = ["recommend", "what [style]", "Ask for a recommendation."]
    assert cells(ekiden("prompts", SHOP).stdout)[1] == row


def test_resources_are_listed_with_templates() -> None:
    listed = cells(ekiden("resources", SHOP).stdout)
    assert [row[0] for row in listed[1:]] == ["shop://opening-hours", "shop://{item}"]


def test_a_server_without_any_says_so(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("from ekiden import Server\nserver = Server('empty')\n")
    done = ekiden("tools", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "The server has no tools.\n")


NEVER_ANSWERS = shlex.join([sys.executable, "-c", "import time; time.sleep(3600)"])


@pytest.mark.parametrize("command", ["tools", "prompts", "resources"])
def test_a_list_that_takes_too_long_is_given_up(command: str) -> None:
    done = ekiden(command, NEVER_ANSWERS, "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ekiden: there was no result within 0.5 seconds; the request was cancelled\n"


def test_a_server_that_starts_slowly_is_waited_for_and_the_terminal_says_so(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = shlex.join(["sh", "-c", f'read _ < {gate}; exec "$0" "$1"', sys.executable, SHOP])
    with running(tmp_path / "log", "tools", slow) as command:
        command.await_saying(f"ekiden: waiting for {slow} to answer")
        with gate.open("w") as opened:
            opened.write("go\n")
        assert command.process.wait(PATIENCE) == 0


async def test_nothing_is_downloaded_from_an_address_that_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(targets, "_PATIENT_SECONDS", 0.0)
    for target in ("http://127.0.0.1:9/mcp", "npx slow"):
        with targets._wait_told(target):
            await asyncio.sleep(0.01)
    address, command = capsys.readouterr().err.splitlines()
    assert address == "ekiden: waiting for http://127.0.0.1:9/mcp to answer"
    assert command.endswith("answer; what is started for the first time may have to be downloaded")


# Keys and tokens


def test_a_new_key_is_a_key() -> None:
    made = ekiden("keys", "new").stdout.strip()
    assert made != ekiden("keys", "new").stdout.strip()
    assert len(made) == len(new_key())


@pytest.fixture
async def token(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A token of the second round of a call, and its key."""
    key = new_key()
    monkeypatch.setenv("EKIDEN_KEYS", key)
    made = Server("made")

    @made.tool
    async def pay(amount: int, ctx: Context) -> str:
        await ctx.step(load, amount)
        await ctx.elicit("Your secret word?", str, key="word")
        await ctx.elicit("Sure?", bool, key="sure")
        return "paid"

    client = ScriptedClient(made, {"word": "swordfish", "sure": True})
    await client.call_tool("pay", {"amount": 3})
    state = client.rounds[1].state
    assert state is not None
    return state, key


async def load(amount: int) -> str:
    return f"account of {amount}"


def test_a_token_is_opened_and_its_values_stay_masked(token: tuple[str, str], tmp_path: Path) -> None:
    state, key = token
    done = ekiden("token", "-", stdin=state, EKIDEN_KEYS=f"{new_key()} {key}")
    assert done.returncode == 0, done.stderr
    for part in ("tools/call", "pay", "made", "still good", "sure", "word", "load", "masked"):
        assert part in done.stdout
    assert "swordfish" not in done.stdout
    assert "account of" not in done.stdout
    assert "amount" not in done.stdout
    file, keys = tmp_path / "result.json", tmp_path / "keys"
    file.write_text(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"requestState": state}}))
    keys.write_text(key)
    shown = ekiden("token", str(file), "--keys-file", str(keys), "--show-values", "--json")
    claims = json.loads(shown.stdout)
    assert (claims["target"], claims["round"], claims["asked"]) == ("pay", 2, "sure")
    assert claims["arguments"] == '{"amount":3}'
    values = {entry["kind"]: entry["value"] for entry in claims["journal"]}
    assert "swordfish" in values["answer"]
    assert values["step"] == '"account of 3"'


def test_a_token_of_another_key_stays_closed(token: tuple[str, str]) -> None:
    state, _ = token
    done = ekiden("token", "-", stdin=state, EKIDEN_KEYS=new_key())
    assert (done.returncode, done.stdout) == (1, "")
    assert "but these keys do not open it" in done.stderr
    assert state[4:12] in done.stderr
    without = ekiden("token", "-", stdin=state)
    assert without.returncode == 2
    assert "set EKIDEN_KEYS, or give --keys-file" in without.stderr
    assert "does not look like a token" in ekiden("token", "-", stdin="x", EKIDEN_KEYS=new_key()).stderr


# Help

HEAVY = [
    "pydantic",
    "rich",
    "questionary",
    "prompt_toolkit",
    "uvicorn",
    "httpx2",
    "mcp_types",
    "cryptography",
]


def test_help_loads_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys\nfrom ekiden.cli.main import main\nsys.argv = ['ekiden', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"
    for command in (
        "run",
        "call",
        "prompt",
        "read",
        "tools",
        "prompts",
        "resources",
        "tasks",
        "keys",
        "token",
    ):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", ["call", "prompt", "read", "tasks"])
def test_commands_that_may_be_asked_have_the_same_options(command: str) -> None:
    shown = ekiden(command, "--help").stdout
    for option in (
        "--answer ",
        "--answers ",
        "--root ",
        "--header ",
        "--era ",
        "--timeout ",
        "--save-to ",
        "--json",
    ):
        assert option in shown, option


def test_the_version_is_that_of_the_package() -> None:
    assert ekiden("--version").stdout.startswith("ekiden 0.")
