"""The load: `wrk` with one thread and 16 connections, which repeats one request as fast as it can."""

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.exchange import PATH, Call
from bench.failure import BenchFailure

CONNECTIONS: Final = 16
_INSTALL_SECONDS: Final = 300
_GRACE_SECONDS: Final = 30

_SCRIPT: Final = """\
wrk.method = "POST"
wrk.body = %(body)s
%(headers)s

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


def run_load(port: int, call: Call, seconds: int, core: int) -> Load:
    """Load the server; any error at all is a failure."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(lua(call))
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


def lua(call: Call) -> str:
    """The script that makes `wrk` send `call`: built once, so that it costs nothing per request."""
    headers = "\n".join(f"wrk.headers[{_quote(k)}] = {_quote(v)}" for k, v in call.headers().items())
    return _SCRIPT % {"body": _quote(call.body()), "headers": headers}


def _quote(text: str) -> str:
    """A Lua string literal: every byte but the plainest as an escape."""
    plain = (chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:03d}" for byte in text.encode())
    return f'"{"".join(plain)}"'
