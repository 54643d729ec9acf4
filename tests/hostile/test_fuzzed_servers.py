"""Hostile servers drawn from seeds, against our client and our command line. See `tests/hostile/fuzzed`."""

import shlex
from pathlib import Path

import pytest

from tests import warm
from tests.cli.driving import person
from tests.cli.terminal.test_harmless import UNWANTED

from .fuzzed.play import play

ROOT = Path(__file__).parent.parent.parent

FOUND = [0]
"""Seeds that broke the law once. 0: `TaskHandle.status` waited for ever for a silent server."""

COMMANDS = [
    "call deed a=b",
    "call deed -v",
    "tools",
    "read x://y",
    "prompt deed",
    "tasks wait t -v",
    "resources",
]


@pytest.mark.parametrize("seed", [*FOUND, *range(1000, 1012)])
async def test_every_call_ends_in_time_with_a_result_or_an_error_of_ours(seed: int) -> None:
    await play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2100))
async def test_every_call_of_many_more_ends_in_time_with_a_result_or_an_error_of_ours(seed: int) -> None:
    await play(seed)


def run_command(seed: int, folder: Path) -> None:
    """A command at a terminal, with a hostile server: it ends in time, in order, and shows nothing raw."""
    name, *words = COMMANDS[seed % len(COMMANDS)].split()
    target = shlex.join(warm.command("-m", "tests.hostile.fuzzed.stdio", str(seed)))
    saved = ["--save-to", str(folder)] if name in ("call", "read", "prompt", "tasks") else []
    with person(name, target, *words, "--timeout", "2", *saved, cwd=ROOT) as user:
        code = user.ends()
        raw = user.raw.decode(errors="replace")
        assert code in (0, 1, 2), user.screen
        assert UNWANTED.search(raw) is None, repr(raw)
        assert "\x1b]" not in raw


@pytest.mark.parametrize("seed", range(8))
def test_a_command_ends_in_time_and_shows_nothing_raw(seed: int, tmp_path: Path) -> None:
    run_command(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_more_commands_end_in_time_and_show_nothing_raw(seed: int, tmp_path: Path) -> None:
    run_command(seed, tmp_path)
