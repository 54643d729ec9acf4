"""`ekiden prompt`, in scripts and at a terminal."""

import json
from pathlib import Path

import pytest

from tests.cli.calling.errands import ERRANDS, errands, over_stdio
from tests.cli.driving import ENTER, SHOP, ekiden, person

LETTER = "user:\nWrite to Aiko.\nuser:\nWrite kindly.\n"


def test_a_prompt_of_one_message_is_printed_as_it_is() -> None:
    done = ekiden("prompt", SHOP, "recommend", "what=train", "style=long=winded")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Recommend a train, long=winded\n", "")


def test_a_prompt_that_asks_is_answered_over_every_transport_in_both_eras(tmp_path: Path) -> None:
    with errands(tmp_path) as (url, _):
        for target in (ERRANDS, over_stdio(), url):
            for era in ("modern", "legacy"):
                done = ekiden(
                    "prompt", target, "letter", "to=Aiko", "--era", era, "--answer", "How do=kindly"
                )
                assert (done.returncode, done.stdout) == (0, LETTER), (target, era, done.stderr)


def test_a_prompt_that_asks_asks_at_the_terminal() -> None:
    with person("prompt", ERRANDS, "letter", "to=Aiko") as user:
        user.reads("How do you write to Aiko?")
        user.presses(ENTER)
        user.reads("Send this")
        user.presses(ENTER)
        assert user.ends() == 0
        assert "Write kindly." in user.screen


def test_a_prompt_is_answered_by_key_and_its_rounds_are_shown() -> None:
    done = ekiden("prompt", ERRANDS, "letter", "to=Aiko", "--answer", "tone=kindly", "-v")
    assert done.stdout == LETTER, done.stderr
    assert "  tone: elicitation/create: How do you write to Aiko?" in done.stderr.splitlines()
    lacking = ekiden("prompt", ERRANDS, "letter", "to=Aiko")
    assert "(key 'tone'; value: one of kindly, shortly)" in lacking.stderr


def test_a_prompt_is_json_for_programs() -> None:
    done = ekiden("prompt", SHOP, "recommend", "what=train", "--json")
    (message,) = json.loads(done.stdout)["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": "Recommend a train, short"}}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([SHOP, "recomend"], 2, "the server has no prompt 'recomend'; did you mean 'recommend'?"),
        ([SHOP, "recommend"], 2, "the prompt needs what=..."),
        ([SHOP, "recommend", "what=a", "wat=b"], 2, "the prompt has no argument 'wat'; it has what, style"),
        ([SHOP, "recommend", "what:=5"], 2, "argument 'what' must be text: write what=VALUE"),
        (["http://127.0.0.1:9/mcp", "recommend"], 1, "Cannot connect to 127.0.0.1:9"),
        ([ERRANDS, "letter", "to=Aiko"], 2, "no answer is given to 'How do you write to Aiko?'"),
    ],
)
def test_a_prompt_that_cannot_be_had_is_told_in_one_line(words: list[str], code: int, said: str) -> None:
    done = ekiden("prompt", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"ekiden: {said}")
    assert done.stderr.count("\n") == 1
