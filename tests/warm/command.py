"""What is started in place of Python: the warm process forks, and the fork has all that this process has.

    python -I -S command.py FOLDER WORDS...

It passes signals on, and ends as the fork does. It imports little: this is all that is left of a start.
"""

import json
import os
import signal
import socket
import struct
import sys
from types import FrameType

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
FITTING = ("-P", "-c", "-m")
"""Options of Python that a fork can have. With others, Python starts as ever."""


def main(folder: str, words: list[str]) -> int:
    """How the fork ended; less than nothing if a signal ended it."""
    inherited = open_descriptors()
    job = {
        "words": words,
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "terminal": False,
        "executable": f"{folder}/python",
        "descriptors": inherited,
    }
    ended, status = os.pipe()
    way = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # Open until the end: its end kills the fork.
    way.connect(f"{folder}/door")
    socket.send_fds(way, [json.dumps(job).encode()], [*inherited, status])
    process = int(way.recv(64))
    os.close(status)

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(process, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    for descriptor in inherited:  # They are the fork's: whoever is at the other end sees when it closes them.
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(struct.unpack("i", os.read(ended, 4))[0])
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    return code


def open_descriptors() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:  # It was for the list itself.
            continue
        found.append(int(name))
    return sorted(found)


def without_warnings(words: list[str]) -> list[str]:
    """The words without `-W error`, which holds for all forks."""
    return words[2:] if words[:2] == ["-W", "error"] else words


if __name__ == "__main__":
    wanted = without_warnings(sys.argv[2:])
    if wanted[0].startswith("-") and wanted[0] not in FITTING:
        os.execv(sys.executable, [sys.executable, *wanted])
    code = main(sys.argv[1], wanted)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
