"""The page about the house shows the house as it is: newcomers find the rooms and files that it names."""

import re
from pathlib import Path

SOURCE = Path("src/ekiden")
PAGE = Path("docs/why/architecture.md").read_text("utf-8")


def rows(heading: str) -> list[tuple[str, str]]:
    """The first two columns of the table that follows a line."""
    table = PAGE.partition(heading)[2].strip().partition("\n\n")[0]
    found = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(first, second) for first, second in found]


def test_every_file_that_a_question_leads_to_is_there() -> None:
    named = [path for _, where in rows("## Where would I ...") for path in re.findall(r"`([^`]+)`", where)]
    missing = [path for path in named if not (SOURCE / path).exists()]
    assert len(named) > 20
    assert not missing


def test_every_room_of_the_server_is_told() -> None:
    told = {room.strip("`/") for room, _ in rows("Inside `server`:") if room.endswith("/`")}
    there = {folder.parent.name for folder in (SOURCE / "server").glob("*/__init__.py")}
    assert told == there
