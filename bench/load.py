"""The load: `wrk` with one thread and 16 connections, which sends requests as fast as it can.

They are one call, made by several client programs, with ids that differ: a server gains nothing if it
recognises requests that it has read before.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.exchange import PATH, Call
from bench.failure import BenchFailure

CONNECTIONS: Final = 16
_INSTALL_SECONDS: Final = 300
_GRACE_SECONDS: Final = 30

_IDS: Final = 64
"""Requests of each client program, which take turns."""

_SCRIPT: Final = """\
local requests = {}
local turn = 0

function init(arguments)
  wrk.method = "POST"
%(requests)s
end

function request()
  turn = turn %% #requests + 1
  return requests[turn]
end

function done(summary)
  local e = summary.errors
  io.write(string.format(
    '\\nSUMMARY {"requests": %%d, "microseconds": %%d, "not_2xx": %%d, "socket_errors": %%d}\\n',
    summary.requests, summary.duration, e.status, e.connect + e.read + e.write + e.timeout))
end
"""


@dataclass(frozen=True)
class Load:
    """What one run of `wrk` did."""

    requests: int
    seconds: float


def ensure_wrk() -> None:
    """`wrk` is there, or a failure says how to get it."""
    if shutil.which("wrk") is not None:
        return
    try:
        subprocess.run(
            ["apt-get", "install", "-y", "wrk"], check=True, capture_output=True, timeout=_INSTALL_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BenchFailure(f"`wrk` is missing and could not be installed ({error}): install it") from error


def run_load(port: int, calls: Sequence[Call], seconds: int, core: int) -> Load:
    """Load the server; any error at all is a failure."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(lua(calls))
        script.flush()
        output = _run_wrk(Path(script.name), port, seconds, core)
    summary = json.loads(output.rpartition("SUMMARY ")[2])
    if summary["not_2xx"] or summary["socket_errors"] or not summary["requests"]:
        raise BenchFailure(f"the load met errors: {summary}")
    return Load(summary["requests"], summary["microseconds"] / 1e6)


def _run_wrk(script: Path, port: int, seconds: int, core: int) -> str:
    command = ["taskset", "-c", str(core), "wrk", "--threads", "1", "--connections", str(CONNECTIONS)]
    command += ["--duration", f"{seconds}s", "--script", str(script), f"http://127.0.0.1:{port}{PATH}"]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise BenchFailure("wrk did not end") from None
    if finished.returncode != 0 or "SUMMARY " not in finished.stdout:
        raise BenchFailure(f"wrk failed: {finished.stdout[-500:]}{finished.stderr[-500:]}")
    return finished.stdout


def lua(calls: Sequence[Call]) -> str:
    """The script that makes `wrk` send the calls in turn: all is spelled before the load begins."""
    return _SCRIPT % {"requests": "\n".join(_spelled(*request) for request in requests_of(calls))}


def requests_of(calls: Sequence[Call]) -> Iterator[tuple[dict[str, str], str]]:
    """The headers and the body of each request of a load."""
    for number in range(_IDS):
        for which, call in enumerate(calls):
            yield call.headers(), call.body(_request_id(number * len(calls) + which))


def _spelled(headers: dict[str, str], body: str) -> str:
    table = ", ".join(f"[{_quote(name)}] = {_quote(value)}" for name, value in headers.items())
    return f"  requests[#requests + 1] = wrk.format(nil, nil, {{{table}}}, {_quote(body)})"


def _request_id(number: int) -> int | str:
    """Numbers that grow, as most clients have; now and then a text."""
    return f"request-{number}" if number % 8 == 7 else 1000 + number


def _quote(text: str) -> str:
    """A Lua string literal: every byte but the plainest as an escape."""
    plain = (chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:03d}" for byte in text.encode())
    return f'"{"".join(plain)}"'
