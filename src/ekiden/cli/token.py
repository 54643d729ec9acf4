"""`ekiden token`: opens a `requestState` with the server's keys, and shows its content.

Answers of the user and results of steps are masked, unless `--show-values` is given.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ekiden.cli.keys import has_keys, use_keys_file
from ekiden.cli.terminal.results import rows_table
from ekiden.cli.terminal.screen import Screen
from ekiden.errors import EkidenError, ParseError, UsageError
from ekiden.wire.json import JsonObject, decode, is_object

if TYPE_CHECKING:
    from ekiden.rounds.call_state import CallState

__all__ = ["show_token"]


def show_token(source: str, keys_file: Path | None, *, show_values: bool, as_json: bool) -> None:
    """Open a token and show what it says and its journal."""
    use_keys_file(keys_file)
    state = _opened(_read(source))
    screen = Screen()
    about = _fields(state, show_values=show_values)
    journal = [_entry(key, state, show_values=show_values) for key in state.journal]
    if as_json:
        screen.json({**about, "journal": journal})
        return
    screen.out.print(rows_table([], [[name, value] for name, value in about.items()]))
    if state.journal_id is not None:
        screen.text(f"The journal was too large for the token: it is in the store as {state.journal_id}.")
    elif not journal:
        screen.text("The journal is empty.")
    else:
        screen.out.print(rows_table(list(journal[0]), [list(entry.values()) for entry in journal]))


def _read(source: str) -> str:
    """The token from a file or stdin, which holds it alone, or the JSON of a result or pending call."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {source}: {error}") from None
    text = text.strip()
    if not text.startswith("{"):
        return text
    try:
        found: Any = decode(text.encode())
    except ParseError as error:
        raise UsageError(f"{source} is neither a token nor JSON: {error.message}") from None
    while is_object(found) and is_object(found.get("result")):
        found = found["result"]
    token = found.get("requestState") or found.get("state")
    if not isinstance(token, str):
        raise UsageError(f"{source} has neither a requestState nor a state")
    return token


def _opened(token: str) -> "CallState":
    from ekiden.rounds.call_state import decode_state
    from ekiden.server.sealing.keys import find_keys

    if not has_keys():
        raise UsageError(
            "a token is opened with the keys of its server: set EKIDEN_KEYS, or give --keys-file"
        )
    data = find_keys(None).open(token)
    if data is None:
        raise EkidenError(
            f"{_origin(token)}, but these keys do not open it: it needs another key, or is not complete"
        )
    try:
        return decode_state(data)
    except msgspec.MsgspecError as error:
        raise EkidenError(f"the token was opened, but its content does not decode: {error}") from None


def _origin(token: str) -> str:
    version, _, rest = token.partition(".")
    key, dot, _ = rest.partition(".")
    if version == "ek1" and dot:
        return f"the token says that the key {key!r} sealed it"
    return "this does not look like a token of ekiden"


def _arguments(kept: bytes, *, show_values: bool) -> Any:
    if kept.startswith(b"#"):
        return f"fingerprint {kept[1:].decode()}"
    return _value(decode(kept), show=show_values)


def _fields(state: "CallState", *, show_values: bool) -> JsonObject:
    """The fields by name; those that are not set are left out."""
    now = datetime.now(UTC)
    expires = datetime.fromtimestamp(state.expires, UTC)
    about = {
        "method": state.method,
        "target": state.target,
        "arguments": _arguments(state.arguments, show_values=show_values),
        "audience": state.audience,
        "principal": state.principal,
        "flow": state.flow,
        "round": state.round,
        "started": _time(state.started),
        "issued": _time(state.issued),
        "expires": f"{_time(state.expires)} ({'expired' if expires < now else 'still good'})",
        "asked": ", ".join(state.asked),
        "pauses": ", ".join(state.pauses),
        "parked": state.parked,
        "trace": state.trace,
        "manual state": None if state.manual is None else _value(state.manual, show=show_values),
        "manual answers": None if state.answers is None else _value(state.answers, show=show_values),
    }
    return {name: value for name, value in about.items() if value not in (None, "")}


def _entry(key: str, state: "CallState", *, show_values: bool) -> JsonObject:
    entry = state.journal[key]
    order = "in order" if entry.branch == 0 else f"in branch {entry.branch}"
    value = _value(entry.value, show=show_values)
    return {"entry": key, "kind": entry.kind, "digest": entry.digest, "done": order, "value": value}


def _value(value: Any, *, show: bool) -> Any:
    spelled = msgspec.json.encode(value)
    return spelled.decode() if show else f"masked, {len(spelled)} bytes"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
