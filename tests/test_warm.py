"""A fork of the warm process is like a process that was just started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.warm import WarmProcess, command, is_fit, python

REPORT = """
import json, os, signal, sys, threading, warnings
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "main": __name__, "cwd": os.getcwd(), "set": os.environ.get("SET"),
    "threads": threading.active_count(), "interrupts": signal.getsignal(SIGINT) is signal.default_int_handler,
    "descriptors": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None,
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.errors], "error": ("error" in
    [action for action, *_ in warnings.filters]), "stdin": sys.stdin.read(),
}))
""".replace("SIGINT", "signal.SIGINT")


def outcome(process: Any, text: bytes = b"") -> tuple[int, str, str]:
    """How a process ended, and what it wrote."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.close()
    with process.stdout, process.stderr:
        said, complained = process.stdout.read().decode(), process.stderr.read().decode()
    return process.wait(30), said, complained


PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


@pytest.mark.parametrize("kind", ["script", "module", "source"])
def test_a_fork_sees_what_a_process_would_see(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "report.py"
    script.write_text(REPORT)
    words = {"script": [str(script)], "module": ["-m", "report"], "source": ["-c", REPORT]}[kind] + ["a", "b"]
    settings = {**os.environ, "SET": "yes", "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}
    forked = python(*words, cwd=tmp_path, env=settings, **PIPES)
    assert isinstance(forked, WarmProcess), "without coverage"
    real = subprocess.Popen([sys.executable, *words], cwd=tmp_path, env=settings, **PIPES)
    code, said, complained = outcome(forked, b"text")
    expected = outcome(real, b"text")
    assert (code, complained) == (expected[0], expected[2]) == (0, "")
    assert json.loads(said) == json.loads(expected[1])


@pytest.mark.parametrize(
    ("source", "code", "complaint"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("raise ValueError('broken')", 1, "ValueError: broken"),
        ("import warnings; warnings.warn('old')", 1, "UserWarning: old"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import sys; sys.exit('in vain')", 1, "in vain"),
        ("import sys; sys.exit(257)", 1, ""),
        ("import socket; left = socket.socket()", 0, "ResourceWarning: unclosed <socket.socket"),
        ("import threading, time; threading.Timer(0.1, print, 'x').start()", 0, ""),
        ("import atexit, os; atexit.register(os.write, 2, b'left in order')", 0, "left in order"),
    ],
)
def test_a_fork_ends_as_a_process_would(source: str, code: int, complaint: str) -> None:
    ended, _, complained = outcome(python("-c", source, **PIPES))
    assert ended == code, complained
    assert complaint in complained


def test_a_fork_is_ended_by_a_signal_and_waited_for_in_vain() -> None:
    process = python("-c", "import time; print('began', flush=True); time.sleep(60)", stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"began\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.terminate()
        assert process.wait(30) == process.poll() == -signal.SIGTERM
    process.kill()  # It is gone, and nobody else is killed instead.


@pytest.mark.parametrize("name", ["PYTHONUTF8", "LC_ALL", "COVERAGE_PROCESS_CONFIG"])
def test_what_python_looks_at_when_it_starts_needs_a_real_process(name: str) -> None:
    usual = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}
    assert not is_fit({**usual, name: "1"})


# What others start


def test_a_command_for_others_is_like_a_process(tmp_path: Path) -> None:
    settings = {**os.environ, "SET": "yes", "PYTHONWARNINGS": "error", "PYTHONUNBUFFERED": "1"}
    words = ["-c", REPORT, "a", "b"]
    commands = [command(*words), [sys.executable, *words]]
    assert commands[0][0] != sys.executable, "without coverage"
    forked, real = [
        outcome(subprocess.Popen(started, cwd=tmp_path, env=settings, **PIPES), b"text")
        for started in commands
    ]
    assert (forked[0], forked[2]) == (real[0], real[2]) == (0, "")
    assert json.loads(forked[1]) == json.loads(real[1])


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_a_command_for_others_ends_as_its_fork_does(source: str, code: int) -> None:
    assert subprocess.run(command("-c", source), timeout=60, check=False).returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_for_the_command_of_others_ends_the_fork(number: int) -> None:
    program = "import time; print('began', flush=True); time.sleep(60)"
    with subprocess.Popen(
        command("-c", program), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"began\n"
        process.send_signal(number)
        assert process.stdout.read() == b"", "only the fork has it open"
        assert process.wait(30) == -number
