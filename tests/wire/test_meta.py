from typing import Any

import pytest

from ekiden.errors import InvalidParams
from ekiden.wire.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    LOG_LEVELS,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    read_meta,
)
from tests.serving import meta


def params(**changes: Any) -> dict[str, Any]:
    return {"_meta": meta(**changes)}


def without(key: str) -> dict[str, Any]:
    return {"_meta": {name: value for name, value in meta().items() if name != key}}


def test_the_least_that_a_request_must_say_is_enough() -> None:
    found = read_meta({"_meta": {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}}})
    assert (found.protocol_version, found.capabilities) == ("2026-07-28", {})
    assert (found.client_info, found.log_level, found.progress_token) == (None, None, None)


def test_all_that_a_request_may_say_is_read() -> None:
    found = read_meta(
        params(**{LOG_LEVEL: "notice", PROGRESS_TOKEN: "p", CLIENT_CAPABILITIES: {"sampling": {}}})
    )
    assert found.capabilities == {"sampling": {}}
    assert found.client_info == {"name": "test", "version": "1"}
    assert (found.log_level, found.progress_token) == ("notice", "p")


def test_keys_of_others_pass_through() -> None:
    found = read_meta(params(**{"traceparent": "00-x", "example.com/key": [1, {"a": None}]}))
    assert found.fields["traceparent"] == "00-x"
    assert found.fields["example.com/key"] == [1, {"a": None}]


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_a_meta_that_is_no_object_is_invalid(value: Any) -> None:
    with pytest.raises(InvalidParams, match="`_meta` is required"):
        read_meta({"_meta": value})


def test_an_absent_meta_is_invalid() -> None:
    with pytest.raises(InvalidParams, match="`_meta` is required"):
        read_meta({})


@pytest.mark.parametrize("key", [PROTOCOL_VERSION, CLIENT_CAPABILITIES])
def test_a_required_key_that_is_missing_is_named(key: str) -> None:
    with pytest.raises(InvalidParams, match=key):
        read_meta(without(key))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PROTOCOL_VERSION, 20260728),
        (PROTOCOL_VERSION, None),
        (CLIENT_CAPABILITIES, []),
        (CLIENT_CAPABILITIES, None),
        (CLIENT_INFO, "me"),
        (CLIENT_INFO, []),
        (LOG_LEVEL, "loud"),
        (LOG_LEVEL, 3),
        (LOG_LEVEL, ["info"]),
        (LOG_LEVEL, "INFO"),
        (PROGRESS_TOKEN, 1.5),
        (PROGRESS_TOKEN, True),
        (PROGRESS_TOKEN, {}),
        (PROGRESS_TOKEN, None),
    ],
)
def test_a_malformed_key_is_invalid_and_named(key: str, value: Any) -> None:
    with pytest.raises(InvalidParams, match=key) as caught:
        read_meta(params(**{key: value}))
    assert caught.value.code == -32602


@pytest.mark.parametrize("token", [0, 1, "", "a"])
def test_a_progress_token_keeps_its_type(token: int | str) -> None:
    found = read_meta(params(**{PROGRESS_TOKEN: token})).progress_token
    assert found == token
    assert type(found) is type(token)


def test_a_progress_token_is_short() -> None:
    assert read_meta(params(**{PROGRESS_TOKEN: "x" * 1000})).progress_token == "x" * 1000
    with pytest.raises(InvalidParams, match="'progressToken' must have at most 1,000 characters"):
        read_meta(params(**{PROGRESS_TOKEN: "x" * 1001}))


def test_the_log_levels_rank_as_in_syslog() -> None:
    ranked = sorted(LOG_LEVELS, key=lambda name: LOG_LEVELS[name])
    assert ranked == ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
