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
    from ekiden.rounds.claims import Claims

__all__ = ["show_token"]


def show_token(source: str, keys_file: Path | None, *, show_values: bool, as_json: bool) -> None:
    """Open a token and show its claims and its journal."""
    use_keys_file(keys_file)
    claims = _opened(_read(source))
    screen = Screen()
    about = _claims(claims, show_values=show_values)
    journal = [_entry(key, claims, show_values=show_values) for key in claims.journal]
    if as_json:
        screen.json({**about, "journal": journal})
        return
    screen.out.print(rows_table([], [[name, value] for name, value in about.items()]))
    if claims.journal_id is not None:
        screen.text(f"The journal was too large for the token: it is in the store as {claims.journal_id}.")
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


def _opened(token: str) -> "Claims":
    from ekiden.rounds.claims import decode_claims
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
        return decode_claims(data)
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


def _claims(claims: "Claims", *, show_values: bool) -> JsonObject:
    """The claims by name; those that are not set are left out."""
    now = datetime.now(UTC)
    expires = datetime.fromtimestamp(claims.expires, UTC)
    about = {
        "method": claims.method,
        "target": claims.target,
        "arguments": _arguments(claims.arguments, show_values=show_values),
        "audience": claims.audience,
        "principal": claims.principal,
        "flow": claims.flow,
        "round": claims.round,
        "started": _time(claims.started),
        "issued": _time(claims.issued),
        "expires": f"{_time(claims.expires)} ({'expired' if expires < now else 'still good'})",
        "asked": ", ".join(claims.asked),
        "pauses": ", ".join(claims.pauses),
        "parked": claims.parked,
        "trace": claims.trace,
        "manual state": None if claims.manual is None else _value(claims.manual, show=show_values),
        "manual answers": None if claims.answers is None else _value(claims.answers, show=show_values),
    }
    return {name: value for name, value in about.items() if value not in (None, "")}


def _entry(key: str, claims: "Claims", *, show_values: bool) -> JsonObject:
    entry = claims.journal[key]
    order = "in order" if entry.branch == 0 else f"in branch {entry.branch}"
    value = _value(entry.value, show=show_values)
    return {"entry": key, "kind": entry.kind, "digest": entry.digest, "done": order, "value": value}


def _value(value: Any, *, show: bool) -> Any:
    spelled = msgspec.json.encode(value)
    return spelled.decode() if show else f"masked, {len(spelled)} bytes"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
