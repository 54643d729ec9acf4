"""What the kernel knows about a process: CPU time, memory, the port it listens on."""

import os
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process so far, in steps of a clock tick (10 ms)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    after_name = stat.rpartition(")")[2].split()  # The name may contain anything, spaces included.
    return (int(after_name[11]) + int(after_name[12])) / _TICKS


def cpu_seconds_of_ended_children(pid: int) -> float:
    """The same for the children of the process that have ended, and theirs."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[13]) + int(after_name[14])) / _TICKS


def rss_megabytes(pid: int) -> float:
    """Resident memory as of now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


def listens_on(pid: int, port: int) -> bool:
    """Whether the process itself holds the listening socket of the port."""
    connections = psutil.Process(pid).net_connections("tcp4")
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
