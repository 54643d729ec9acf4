"""The log of a server at a terminal: whatever others have sent, a record is a record."""

import logging

import pytest

from ekiden.cli.serving.job import set_up_logging

POISON = "\x1b]0;owned\x07\x1b[2Jred\r\nERROR root: forged\u202e\u2028WARNING root: forged"


def test_words_of_others_neither_steer_the_terminal_nor_look_like_a_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    level = logging.root.level
    set_up_logging("warning")
    try:
        logging.getLogger("theirs").warning("They say %s", POISON)
        try:
            raise ValueError(POISON)
        except ValueError:
            logging.getLogger("theirs").exception("It failed")
        logging.getLogger("theirs").warning("x" * 1_000_000)
    finally:
        logging.root.setLevel(level)
    written = capsys.readouterr().err
    lines = written.splitlines()
    assert "\x1b" not in written
    assert "\u202e" not in written
    assert [line for line in lines if not line.startswith(("  ", "Traceback"))] == [
        "WARNING theirs: They say ]0;owned[2Jred",
        "ERROR theirs: It failed",
        lines[-1],
    ]
    assert any(line.startswith("  ValueError: ") for line in lines)
    assert len(lines[-1]) < 11_000
