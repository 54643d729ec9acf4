"""Ctrl-C in the tests."""

import subprocess
import sys

PROGRAM = """
import subprocess, sys
import tests.conftest
child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
subprocess.run([sys.executable, "-c", child], check=True)
"""


def test_what_tests_start_can_be_interrupted_although_who_started_the_tests_cannot() -> None:
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr
