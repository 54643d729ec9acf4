"""`ekiden call` as a person sees it, at a real pseudo-terminal."""

import shlex
import signal
import sys
from pathlib import Path

import pytest

from scripts.ports import free_port
from tests.cli.driving import CTRL_C, DOWN, ENTER, ESC, SHOP, SPACE, eventually, person


def test_a_form_is_filled_in_field_by_field_and_sent_after_a_look_at_it() -> None:
    with person("call", SHOP, "order") as user:
        user.reads(f"shop ({SHOP}) asks:")
        user.reads("What may it be?")
        user.reads("Your name")
        user.presses("Aiko", ENTER)
        user.reads("seats (how many)")
        user.presses(ENTER)  # The default is there already.
        user.reads("price")
        user.presses(ENTER)  # It is optional.
        user.reads("email")
        user.presses("aiko@example.com", ENTER)
        user.reads("day")
        user.presses("2026-07-28", ENTER)
        user.reads("How fast")
        user.reads("Fast as an arrow")
        user.presses(DOWN, ENTER)
        user.reads("extras")
        user.presses(SPACE, DOWN, DOWN, SPACE, ENTER)
        user.reads("insured")
        user.presses("y")
        user.reads("member")
        user.reads("Enter: leave empty")
        user.presses("n")
        user.reads("extras: meal, quiet")
        user.reads("Send this to shop")
        user.presses(ENTER)
        assert user.ends() == 0
        assert '"seats": 2' in user.screen
        for row in ('"speed": "slow"', '"insured": true', '"member": false', '"day": "2026-07-28"'):
            assert row in user.screen
        assert "price" not in user.screen.split("Send this")[-1]


def test_what_does_not_fit_is_told_and_can_be_corrected() -> None:
    with person("call", SHOP, "order") as user:
        user.reads("Your name")
        user.presses(ENTER)
        user.reads("This is required")
        user.types("A")
        user.reads("shorter than 2 characters")
        user.types("iko")
        user.reads("seats")
        user.types("many", instead_of="2")
        user.reads("must be a whole number, not 'many'")
        user.types("9", instead_of="many")
        user.reads("9 is greater than the maximum of 4")
        user.types("3", instead_of="9")
        user.reads("price")
        user.types("-1")
        user.reads("less than the minimum")
        user.types("1.5", instead_of="-1")
        user.reads("email")
        user.types("aiko")
        user.reads("must be an e-mail address")
        user.types("@example.com")
        user.reads("day")
        user.types("tomorrow")
        user.reads("must be a date such as 2026-07-28")
        user.presses("\x7f" * 8, ENTER)
        user.reads("How fast")
        user.presses(ENTER)
        user.reads("extras")
        user.presses(ENTER)
        user.reads("has less than 1 item")
        user.reads("extras")
        user.presses(SPACE, ENTER)
        user.reads("insured")
        user.presses(ENTER)
        user.reads("member")
        user.presses(ENTER)
        user.reads("insured: no")
        user.reads("Send this")
        user.presses(ENTER)
        assert user.ends() == 0
        sent = user.screen.rpartition("Send this")[2]
        assert '"seats": 3' in sent
        assert '"price": 1.5' in sent
        assert "member" not in sent
        assert "day" not in sent


def test_a_form_can_be_changed_before_it_is_sent() -> None:
    with person("call", SHOP, "name_it") as user:
        user.reads("value")
        user.types("Hikari")
        user.reads("value: Hikari")
        user.reads("Send this")
        user.presses(DOWN, ENTER)
        user.reads("value")
        user.types("Nozomi", instead_of="Hikari")
        user.reads("value: Nozomi")
        user.reads("Send this")
        user.presses(ENTER)
        assert user.ends() == 0
        assert "accept: Nozomi" in user.screen


@pytest.mark.parametrize(("key", "said"), [("y", "True"), ("n", "False"), (ENTER, "False")])
def test_yes_or_no_takes_one_key(key: str, said: str) -> None:
    with person("call", SHOP, "confirm") as user:
        user.reads("y or n is sent at once")
        user.reads("value")
        user.presses(key)
        assert user.ends() == 0
        assert f"accept: {said}" in user.screen
        assert "Send this" not in user.screen


def test_yes_or_no_can_be_declined() -> None:
    with person("call", SHOP, "confirm") as user:
        user.reads("value")
        user.presses(ESC)
        user.reads("What now?")
        user.presses(ESC)  # Back to the question.
        user.reads("value")
        user.presses(ESC)
        user.reads("What now?")
        user.presses(DOWN, ENTER)
        assert user.ends() == 0
        assert "decline: None" in user.screen


def test_a_question_is_declined_from_any_field() -> None:
    with person("call", SHOP, "order") as user:
        user.reads("Your name")
        user.presses("Aiko", ENTER)
        user.reads("seats")
        user.presses(ESC)
        user.reads("What now?")
        user.presses(ENTER)  # Go on with the form.
        user.reads("seats")
        user.presses(ESC)
        user.reads("What now?")
        user.presses(DOWN, ENTER)
        assert user.ends() == 0
        assert "declined" in user.screen


def test_a_question_is_dismissed_before_it_is_sent() -> None:
    with person("call", SHOP, "name_it") as user:
        user.reads("value")
        user.types("Hikari")
        user.reads("Send this")
        user.presses(DOWN * 3, ENTER)
        assert user.ends() == 0
        assert "cancel: None" in user.screen


def test_ctrl_c_in_a_form_ends_the_call_without_a_word_too_many() -> None:
    with person("call", SHOP, "order") as user:
        user.reads("Your name")
        user.presses("Ai", CTRL_C)
        assert user.ends() == 130
        assert "interrupted; the call was cancelled" in user.screen


def test_ctrl_c_in_a_choice_ends_the_call() -> None:
    with person("call", SHOP, "visit") as user:
        user.reads("Open it?")
        user.presses(CTRL_C)
        assert user.ends() == 130


def test_a_signal_in_a_form_ends_the_call() -> None:
    with person("call", SHOP, "visit") as user:
        user.reads("Open it?")
        user.process.send_signal(signal.SIGINT)
        assert user.ends() == 130


def test_ctrl_c_while_a_tool_runs_cancels_it(tmp_path: Path) -> None:
    with person("call", SHOP, "take_long", f"marks={tmp_path}") as user:
        user.reads("a quarter done")
        eventually((tmp_path / "began").exists, "the tool begins")
        user.presses(CTRL_C)
        assert user.ends() == 130
        assert "interrupted; the call was cancelled" in user.screen
    assert (tmp_path / "cancelled").exists()


def test_ctrl_c_reaches_a_server_on_stdio_as_a_cancellation_only(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, SHOP])
    with person("call", command, "take_long", f"marks={tmp_path}") as user:
        user.reads("a quarter done")
        user.presses(CTRL_C)
        assert user.ends() == 130
        assert user.screen.strip().endswith("interrupted; the call was cancelled")
    assert (tmp_path / "cancelled").exists()


def test_ctrl_c_ends_all_workers_without_a_word() -> None:
    with person("run", SHOP, "--workers", "2", "--port", str(free_port())) as user:
        user.reads("see `ekiden keys new`")
        user.presses(CTRL_C)
        assert user.ends() == 130
        assert user.screen.rstrip().endswith("^C")


def test_a_page_is_opened_only_after_its_host_was_shown_and_the_user_agreed(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    with person("call", SHOP, "visit", BROWSER=f"{browser} %s") as user:
        user.reads("It wants you to open a page of rail.example:")
        user.reads("https://user@rail.example/login?next=1")
        user.reads("Open it?")
        assert not (tmp_path / "opened").exists()
        user.presses(ENTER)
        user.reads("Go on when you are done")
        user.presses(ENTER)
        assert user.ends() == 0
        assert "accept" in user.screen
    assert (tmp_path / "opened").read_text() == "https://user@rail.example/login?next=1\n"


def test_a_page_can_be_declined() -> None:
    with person("call", SHOP, "visit") as user:
        user.reads("Open it?")
        user.presses(DOWN, DOWN, ENTER)
        assert user.ends() == 0
        assert "\ndecline\n" in user.screen


def test_a_page_that_is_dismissed_connects_nobody() -> None:
    trip = Path(__file__).parent.parent.parent.parent / "examples" / "trip.py"
    with person("call", str(trip), "connect_account") as user:
        user.reads("Open it?")
        user.presses(ESC)
        assert user.ends() == 0
        assert user.screen.rstrip().endswith("Not connected.")


def test_questions_of_one_round_come_one_after_another() -> None:
    with person("call", SHOP, "two_at_once") as user:
        user.reads("First of all?")
        user.reads("value")
        assert "And then?" not in user.screen
        user.presses("one", ENTER)
        user.reads("Send this")
        user.presses(ENTER)
        user.reads("And then?")
        user.reads("value")
        user.presses("two", ENTER)
        user.reads("Send this")
        user.presses(ENTER)
        assert user.ends() == 0
        assert "\none two\n" in user.screen


def test_the_user_writes_what_the_model_would_say() -> None:
    with person("call", SHOP, "plan", "--root", "file:///home/aiko") as user:
        user.reads("One sight in Nara?")
        user.reads("Reply")
        user.presses("the deer", ENTER)
        assert user.ends() == 0
        assert "the deer in ['file:///home/aiko']" in user.screen


def test_a_server_cannot_write_escape_sequences_to_the_terminal() -> None:
    with person("call", SHOP, "confirm") as user:
        user.reads("Is that ]0;evil[31mred[0m all right?")
        user.presses(CTRL_C)
        assert user.ends() == 130
        assert b"\x1b]0;evil" not in user.raw
