"""`make demo`: the call goes on although its processes are killed; with its own answers, and a person's."""

import re
import subprocess
import sys
from pathlib import Path

import psutil

from .driving import CTRL_C, DOWN, ENTER, ESC, PATIENCE, environment, eventually, person

DEMO = [sys.executable, "-W", "error", str(Path(__file__).parent.parent.parent / "examples" / "demo.py")]


def table(said: str, title: str) -> list[list[str]]:
    """The rows of a table, cell by cell."""
    rows = said.partition(title)[2].splitlines()
    cells = [[cell.strip() for cell in row.strip("│ ").split("│")] for row in rows if row.startswith("│")]
    assert cells, said
    return cells


def served(said: str) -> list[str]:
    """The processes that served the rounds."""
    rounds = table(said.partition("Steps")[0], "Rounds")
    return [process for _, process, _, _ in rounds]


def test_without_a_terminal_it_answers_by_itself_and_every_step_runs_once() -> None:
    done = subprocess.run(
        DEMO, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout
    assert "Round 3: Booked 2 seats in the 9:03 to Hakone: receipt over 240." in said
    assert len(set(served(said))) == 3, "each round has a process of its own"
    assert table(said, "Steps") == [["find_train", "once"], ["charge", "once"]]
    command = re.search(
        r"^(?:\S*/)?ekiden ui --store sqlite:///(\S+) --show-values --call [0-9a-f]{24}$", said, re.MULTILINE
    )
    assert command is not None
    assert Path(command[1]).exists()
    killed = re.findall(r"worker (\d+) was ended by SIGKILL; another one starts", said)
    assert killed == served(said)[:2]
    parent = int(re.findall(r"by 3 workers of process (\d+)", said)[0])
    assert not psutil.pid_exists(parent), "the server has ended with the demo"


def test_at_a_terminal_it_asks_the_person() -> None:
    with person(command=DEMO) as user:
        user.reads("Seats in the 9:03 to Hakone?")
        user.reads("seats (how many)")
        user.types("3", instead_of="2")
        user.reads("Send this to relay?")
        user.presses(ENTER)
        user.reads("Pay 360 for 3 seats")
        user.reads("pay (charge the card)")
        user.presses("y")
        assert user.ends() == 0
        assert "Booked 3 seats in the 9:03 to Hakone: receipt over 360." in user.screen
        assert len(set(served(user.screen))) == 3


def test_a_person_who_declines_is_not_asked_again() -> None:
    with person(command=DEMO) as user:
        user.reads("seats (how many)")
        user.presses(ESC)
        user.reads("What now?")
        user.presses(DOWN, ENTER)
        assert user.ends() == 0
        assert "Nothing was booked." in user.screen
        assert len(served(user.screen)) == 2
        assert table(user.screen, "Steps") == [["find_train", "once"]]


def test_ctrl_c_ends_the_demo_and_its_server() -> None:
    with person(command=DEMO) as user:
        user.reads("seats (how many)")
        children = psutil.Process(user.process.pid).children(recursive=True)
        assert len(children) >= 3
        user.presses(CTRL_C)
        assert user.ends() == 130
        eventually(lambda: not any(child.is_running() for child in children), "all processes end")
