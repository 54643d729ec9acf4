"""Which texts are keys, and who may read their file."""

import base64
import logging
from pathlib import Path

import pytest

from ekiden import UsageError
from ekiden.server.sealing.keys import KeyRing, find_keys, new_key

_KEY = "X_4eiZhpsBIstzR9oUoEhCUS1P7WFiY5KfDYGhHNkRM="


def test_every_key_that_we_make_is_accepted() -> None:
    for _ in range(2000):
        KeyRing([new_key()])


def test_keys_of_other_makers_are_accepted() -> None:
    secret = bytes.fromhex("8f3a1c59d27be6404b9d0c7e5f61a2387be4f0c1d2935a6e7f8091b2c3d4e5f6")
    spelled = [
        base64.b64encode(secret),
        base64.urlsafe_b64encode(secret),
        base64.b64encode(secret).rstrip(b"="),
    ]
    assert len({KeyRing([text.decode()]).ids[0] for text in spelled}) == 1
    KeyRing([secret.hex()])
    KeyRing([secret])


@pytest.mark.parametrize(
    "text",
    [
        "correct horse battery staple and some more words after it",
        "correct-horse-battery-staple-and-some-more-words-after-it",
        "correcthorsebatterystapleandsomemorewordsafterit",
        "CorrectHorseBatteryStapleCorrectHorseBatteryStaple",
        "k" * 44,
        "0" * 64,
        "Passwort!Passwort!Passwort!Passwort!Passwort!",
        "\u00e9" * 50,
        _KEY[:-2] + "*=",
        _KEY[:20] + " " + _KEY[:30],
    ],
)
def test_a_passphrase_is_not_a_key(text: str) -> None:
    with pytest.raises(UsageError, match="ekiden keys new"):
        KeyRing([text])


@pytest.mark.parametrize("key", ["", "c2hvcnQ=", b"short", _KEY[:30]])
def test_a_short_key_is_refused_with_the_command_that_makes_a_good_one(key: str | bytes) -> None:
    with pytest.raises(UsageError, match=r"at least 32 bytes.*ekiden keys new"):
        KeyRing([key])


def test_what_is_refused_is_not_quoted() -> None:
    with pytest.raises(UsageError) as refused:
        KeyRing(["a passphrase that should not be in any log"])
    assert "passphrase" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "warns"),
    [(0o600, False), (0o400, False), (0o440, False), (0o644, True), (0o660, True), (0o602, True)],
)
def test_a_key_file_that_others_can_read_or_change_is_reported(
    tmp_path: Path, mode: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text(new_key())
    file.chmod(mode)
    with caplog.at_level(logging.WARNING):
        find_keys(file)
    assert [f"chmod 600 {file}" in record.getMessage() for record in caplog.records] == [True] * warns
