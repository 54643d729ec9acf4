"""The first page of the tutorial: its commands print what it says."""

import os
import re
import signal
from pathlib import Path
from typing import Final

from tests.cli.driving import ENTER, ekiden, person, running
from tests.docs.blocks import blocks

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = (ROOT / "docs" / "tutorial" / "five-minutes.md").read_text()
COMMANDS: Final = [
    line for language, _, code in blocks(PAGE) if language == "console" for line in code.splitlines()
]
SHOWN: Final = [code for language, _, code in blocks(PAGE) if language == "text"]


def test_the_page_has_these_commands() -> None:
    assert COMMANDS == [
        "$ python3 -m venv .venv",
        "$ . .venv/bin/activate",
        "$ pip install '.[cli]'",
        "$ export EKIDEN_KEYS=$(ekiden keys new)",
        "$ ekiden run station.py --workers 3",
        "$ ekiden call http://127.0.0.1:8000/mcp book city=Hakone",
        "$ kill -9 29371",
    ]


def test_the_call_of_the_page_outlives_the_worker_that_asked(tmp_path: Path) -> None:
    (source,) = [code for _, title, code in blocks(PAGE) if title == "examples/station.py"]
    (tmp_path / "station.py").write_text(source)
    key = ekiden("keys", "new").stdout.strip()
    words = [*COMMANDS[4].split()[2:], "--port", "0"]
    with running(tmp_path / "log", *words, cwd=tmp_path, forks=False, EKIDEN_KEYS=key) as server:
        server.await_saying("is served at")
        url, supervisor = re.findall(r"is served at (\S+) by 3 workers of process (\d+)", server.said)[0]
        with person(*(url if "://" in word else word for word in COMMANDS[5].split()[2:])) as user:
            user.reads("how many seats to Hakone?")
            asker = re.findall(r"Process (\d+) asks", user.screen)[0]
            os.kill(int(asker), signal.SIGKILL)
            server.await_saying(f"worker {asker} was ended by SIGKILL")
            user.reads("? value")
            user.types("2")
            user.reads("Send this to station")
            user.presses(ENTER)
            assert user.ends() == 0
            answerer = re.findall(r"(\d+) answers", user.screen)[0]
            assert answerer != asker
            ours = {url: "http://127.0.0.1:8000/mcp", supervisor: "29368", asker: "29371", answerer: "29372"}
            told = f"{server.said}{user.screen}\n"
    for theirs, name in ours.items():
        told = re.sub(rf"(?<!\w){re.escape(theirs)}(?!\w)", name, told)
    assert [block for block in SHOWN if block not in told] == []
