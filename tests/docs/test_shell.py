"""Every command that a page tells to type is typed and prints what the page says, or there is a reason."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.docs.blocks import blocks
from tests.docs.shell import PAGES, ROOT, Command, commands, shell

NETWORK: Final = "it downloads"
ELSEWHERE: Final = "typed by "
SESSIONS_OF_TASKS: Final = f"{ELSEWHERE}tests/docs/test_command_line.py"
FIVE_MINUTES: Final = f"{ELSEWHERE}tests/docs/test_five_minutes.py"
SCALE: Final = f"{ELSEWHERE}tests/docs/test_scale.py"

NOT_TYPED: Final[Mapping[str, Mapping[str, str]]] = {
    "README.md": {"pip install '.[cli]'": NETWORK},
    "docs/how-to/command-line.md": {
        "ekiden prompt examples/weather.py": SESSIONS_OF_TASKS,
        "ekiden read examples/weather.py": SESSIONS_OF_TASKS,
        "ekiden call http://127.0.0.1:8000/mcp refund": SESSIONS_OF_TASKS,
        "ekiden tasks ": SESSIONS_OF_TASKS,
        'ekiden call "npx some-server --flag"': "there is no such server",
        "ekiden tools http://127.0.0.1:8000/mcp --header": "the server of this page wants no token",
        "ekiden token state.txt": f"it needs a call that is open; {ELSEWHERE}tests/cli/test_looking.py",
    },
    "docs/how-to/dev.md": {"pip install": NETWORK},
    "docs/how-to/operate.md": {
        "ekiden run shop.py --host 0.0.0.0": "it listens on all addresses, with a certificate of the reader; "
        f"{ELSEWHERE}tests/cli/test_run_options.py"
    },
    "docs/how-to/see-calls.md": {"pip install": NETWORK},
    "docs/how-to/serve-other-servers.md": {
        "ekiden run their_server.py": "FastMCP is in another environment; "
        f"{ELSEWHERE}tests/carried/test_examples.py"
    },
    "docs/how-to/tasks.md": {
        "ekiden tasks --store sqlite:///tasks.db cancel ID": SESSIONS_OF_TASKS,
        "ekiden tasks https://mcp.example/mcp": SESSIONS_OF_TASKS,
    },
    "docs/reference/metrics.md": {"curl -s": "curl may not be here"},
    "docs/tutorial/five-minutes.md": {
        "python3 -m venv .venv": NETWORK,
        ". .venv/bin/activate": NETWORK,
        "pip install '.[cli]'": NETWORK,
        "export EKIDEN_KEYS=": FIVE_MINUTES,
        "ekiden run station.py": FIVE_MINUTES,
        "ekiden call": FIVE_MINUTES,
        "kill -9": FIVE_MINUTES,
    },
    "docs/why/scale.md": {"python -m bench.capacity": SCALE},
    "examples/flashing/README.md": {
        "ekiden call": f"an approver answers, too; {ELSEWHERE}examples/flashing/test_processes.py"
    },
    "examples/paid_resource/README.md": {"pkill": f"{ELSEWHERE}tests/docs/test_paid_resource.py"},
}
"""How the commands begin that are not typed here, and why."""


class Session(NamedTuple):
    """What a page takes for granted, and what a person would answer."""

    files: Mapping[str, str] = {}
    """The reader's own files: which example each is, or its text."""
    before: tuple[str, ...] = ()
    """What was typed before the page begins."""
    answers: Mapping[str, tuple[str, ...]] = {}
    """What a reader answers, as words at the end of the command that asks."""
    instead: Mapping[str, str] = {}
    """What stands for addresses and folders: `{postgres}` is a database, `{folder}` that of the session."""


WITH_TASKS: Final = """from ekiden import Server

server = Server("shop")


@server.tool(task="optional")
async def work() -> str:
    return "done"
"""
SHOP: Final = {"shop.py": "examples/refund.py"}
SESSIONS: Final[Mapping[str, Session]] = {
    "docs/how-to/command-line.md": Session(
        files={"answers.json": '{"what do you need?": {"seats": 2, "email": "aiko@example.com"}}'},
    ),
    "docs/how-to/dev.md": Session(files={"server.py": "examples/refund.py"}),
    "docs/how-to/install.md": Session(files={"home/.claude.json": "{}\n"}),
    "docs/how-to/operate.md": Session(files=SHOP),
    "docs/how-to/see-calls.md": Session(before=("ekiden store migrate sqlite:///shop.db",)),
    "docs/how-to/tasks.md": Session(
        files={"server.py": WITH_TASKS},
        before=("ekiden store migrate {postgres}",),
        instead={
            "postgresql://shop@db.example/shop": "{postgres}",
            "postgresql://...": "{postgres}",
            "/var/lib/shop": "{folder}",
        },
    ),
    "docs/reference/metrics.md": Session(files=SHOP),
    "docs/tutorial/longer-work.md": Session(
        files={"returns.py": "examples/returns.py"},
        answers={
            "ekiden call": ("--answer", "Refund=yes", "--answer", "Why=late", "--answer", "boss=yes"),
        },
    ),
    "examples/careful_sql/README.md": Session(
        files={name: f"examples/careful_sql/{name}" for name in ("server.py", "database.py")},
        instead={"postgresql://postgres@127.0.0.1/postgres": "{postgres}"},
    ),
    "examples/flashing/README.md": Session(
        files={name: f"examples/flashing/{name}" for name in ("server.py", "devices.py")},
    ),
    "examples/paid_resource/README.md": Session(
        files={name: f"examples/paid_resource/{name}" for name in ("paid_resource.py", "cloud.py")},
        answers={"ekiden call": ("--answer", "Create=yes")},
    ),
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def reason(page: str, command: Command) -> str | None:
    """Why a command is not typed here."""
    reasons = NOT_TYPED.get(page, {})
    return next((why for begins, why in reasons.items() if command.line.startswith(begins)), None)


TYPED: Final = {
    name_of(page): typed
    for page in PAGES
    if (typed := [one for one in commands(page.read_text()) if reason(name_of(page), one) is None])
}


SLOW: Final = {
    "README.md",
    "docs/how-to/command-line.md",
    "docs/how-to/tasks.md",
    "docs/reference/metrics.md",
    "examples/careful_sql/README.md",
}
"""The pages that start many processes. Each of their commands is tried by faster tests, too."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page for page in TYPED]
)
def test_the_commands_of_a_page_do_what_it_says(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session = SESSIONS.get(page, Session())
    known = {"folder": str(tmp_path)}
    if "{postgres}" in str(session):
        postgres: Any = request.getfixturevalue("postgres")
        known["postgres"] = postgres.new_database()
    instead = {theirs: ours.format(**known) for theirs, ours in session.instead.items()}
    with shell(tmp_path, session.files, instead) as terminal:
        for line in session.before:
            terminal.type(Command(line.format(**known), None))
        for command in TYPED[page]:
            more = (words for begins, words in session.answers.items() if command.line.startswith(begins))
            terminal.type(command, *next(more, ()))


def test_every_reason_is_about_a_command_of_its_page_and_names_tests_that_are_there() -> None:
    lines = {name_of(page): [one.line for one in commands(page.read_text())] for page in PAGES}
    for page, reasons in NOT_TYPED.items():
        for begins, why in reasons.items():
            assert any(line.startswith(begins) for line in lines[page]), (page, begins)
            _, _, named = why.partition(ELSEWHERE)
            assert not named or (ROOT / named).is_file(), why
    assert set(SESSIONS) <= set(TYPED)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_stand_in_blocks_in_which_they_are_found(page: Path) -> None:
    text = page.read_text()
    for language, _, code in blocks(text):
        assert language in ("console", "sh") or not re.search(r"^\$ ", code, re.MULTILINE), (language, code)
    assert not re.search(r"^ *```\n(?=\S)(?!\n)(?:\$ |ekiden |pip |python )", text, re.MULTILINE), page
    outside = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    (?:\$ |ekiden |pip |python ).*", outside, re.MULTILINE)
    assert indented == []
