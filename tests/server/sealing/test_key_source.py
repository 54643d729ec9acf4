"""Keys that change while a server runs: from a file, and from a function."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ekiden import Server, UsageError
from ekiden.server.sealing import key_source
from ekiden.server.sealing.key_source import KeySource
from ekiden.server.sealing.keys import KeyRing, new_key


def write(path: Path, *keys: str) -> None:
    """Replace a file of keys as one should: whole, in one move."""
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(keys))
    fresh.chmod(0o600)
    fresh.replace(path)


def source_of(keys: Path | Callable[[], list[str]]) -> KeySource:
    return KeySource(keys, warn=lambda: False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that sources see, which stands still unless a test moves it."""
    now = [1000.0]
    monkeypatch.setattr(key_source.time, "monotonic", lambda: now[0])
    return now


def test_a_changed_file_is_noticed_within_a_second(tmp_path: Path, clock: list[float]) -> None:
    old, new = new_key(), new_key()
    file = tmp_path / "keys"
    write(file, old)
    source = source_of(file)
    token = source().seal(b"x")
    write(file, new, old)
    assert source().seal(b"x")[:12] == token[:12], "it is looked at once a second only"
    clock[0] += 1
    assert source().seal(b"x")[:12] != token[:12], "the first key seals"
    assert source().open(token) == b"x", "the old one opens until it is removed"
    write(file, new)
    clock[0] += 1
    assert source().open(token) is None


@pytest.mark.usefixtures("clock")
def test_a_token_of_an_unknown_key_makes_it_look_at_once(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    file = tmp_path / "keys"
    write(file, old)
    source = source_of(file)
    source()
    write(file, new, old)
    assert source().open(KeyRing([new]).seal(b"from a worker that was faster")) is not None
    at_rest = source().seal_at_rest(b"x", b"row")
    newest = new_key()
    write(file, newest, new)
    assert source().open_at_rest(KeyRing([newest]).seal_at_rest(b"y", b"row"), b"row") == b"y"
    assert source().open_at_rest(at_rest, b"row") == b"x"


def test_a_function_is_called_every_ten_seconds_and_for_unknown_tokens_once_a_second(
    clock: list[float],
) -> None:
    keys, calls = [new_key()], [0]

    def fetch() -> list[str]:
        calls[0] += 1
        return keys

    source = source_of(fetch)
    stranger = KeyRing([new_key()]).seal(b"forged")
    for _ in range(5):
        assert source().open(stranger) is None
    assert calls[0] == 1, "anybody can send forged tokens"
    clock[0] += 1
    for _ in range(5):
        assert source().open(stranger) is None
    assert calls[0] == 2
    keys.insert(0, new_key())
    clock[0] += 10
    assert source().seal(b"x").startswith(KeyRing(keys).seal(b"x")[:12])
    assert calls[0] == 3


def test_keys_that_cannot_be_used_change_nothing_and_are_said_in_the_log(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    write(file, new_key())
    source = source_of(file)
    token = source().seal(b"x")
    for spoil in (lambda: write(file, "c2hvcnQ="), lambda: write(file), file.unlink):
        spoil()
        clock[0] += 1
        assert source().open(token) == b"x"
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert all("the old ones stay" in record.getMessage() for record in caplog.records)


def test_a_file_that_is_written_in_place_is_read_once_it_is_whole(tmp_path: Path, clock: list[float]) -> None:
    old, new = new_key(), new_key()
    file = tmp_path / "keys"
    write(file, old)
    source = source_of(file)
    token = source().seal(b"x")
    file.write_text(f"{new}\n")  # The rest, with the old key, is still to come.
    clock[0] += 1
    assert source().open(token) == b"x"
    assert source().open(KeyRing([new]).seal(b"x")) is None
    file.write_text(f"{new}\n{old}\n")
    written = file.stat().st_mtime_ns - 2_000_000_000
    os.utime(file, ns=(written, written))
    clock[0] += 1
    assert source().open(token) == b"x"
    assert source().open(KeyRing([new]).seal(b"x")) == b"x"


def test_a_file_that_is_half_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for half in ("", "# keys of the shop\n", f"{new_key()}\n{new_key()[:20]}"):
        write(file, half)
        with pytest.raises(UsageError, match=r"the key file .*keys .*mv keys.new keys"):
            Server("s", keys=file)


def test_keys_that_cannot_be_used_at_the_start_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Server("s", keys=tmp_path / "nowhere")


def test_a_file_that_is_written_within_one_tick_of_the_clock_is_read_on_request(
    tmp_path: Path, clock: list[float]
) -> None:
    old, new = new_key(), new_key()
    file = tmp_path / "keys"
    file.write_text(old)
    stamp = file.stat()
    server = Server("s", keys=file)
    with file.open("r+") as same:
        same.write(new)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    clock[0] += 1
    server.renew_keys()
    assert server.renews_keys
    token = KeyRing([new]).seal(b"x")
    assert server._keys().open(token) == b"x"


def test_keys_of_the_environment_and_of_the_constructor_do_not_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("EKIDEN_KEYS", raising=False)
    assert not Server("s", keys=[new_key()]).renews_keys
    monkeypatch.setenv("EKIDEN_KEYS_FILE", str(tmp_path / "keys"))
    assert Server("s").renews_keys
    monkeypatch.setenv("EKIDEN_KEYS", new_key())
    assert not Server("s").renews_keys
