"""The clients of the matrix: whose they are, which version they speak, and how they are started."""

import runpy
from pathlib import Path
from typing import Literal, NamedTuple

from tests import warm
from tests.peers import running

HERE = Path(__file__).parent

MODERN, OLDER, JUNE, MARCH = "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"


class PeerClient(NamedTuple):
    name: str
    title: str
    """For the documentation."""
    environment: str | None
    """Where under `.peers` it lives; ours is here."""
    script: str
    mode: Literal["auto", "legacy"]
    version: str
    """The version that it comes to speak with our server."""
    concurrent: bool = True
    """Whether it has several questions answered at the same time."""
    slow: bool = False
    """Whether it is left to `make test-all`."""

    @property
    def checks_answers(self) -> bool:
        """Whether it refuses to send an answer that does not fit the form, as ours does."""
        return self.environment is None

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN

    def command(self) -> list[str]:
        """How its script is started; a missing environment is a failure, not a reason to skip."""
        script = str(HERE / self.script)
        if self.environment is None:
            return warm.command(script, self.mode)
        environment = running.ROOT / ".peers" / self.environment
        running.require(environment)
        if self.script.endswith(".py"):
            return [str(environment / "bin" / "python"), script, self.mode]
        node = runpy.run_path(str(running.ROOT / "scripts" / "npm.py"))["NODE"]
        return [str(node), script, self.mode]


CLIENTS = [
    PeerClient("ekiden", "ekiden", None, "ekiden_client.py", "auto", MODERN),
    PeerClient("ekiden-2025", "ekiden", None, "ekiden_client.py", "legacy", OLDER),
    PeerClient("mcp-2.3", "mcp 2.3 (Python)", "mcp", "python_client.py", "auto", MODERN),
    PeerClient("mcp-2.3-2025", "mcp 2.3 (Python)", "mcp", "python_client.py", "legacy", OLDER),
    PeerClient("mcp-1.30", "mcp 1.30 (Python)", "mcp1", "python1_client.py", "auto", OLDER, concurrent=False),
    PeerClient(
        "mcp-1.22", "mcp 1.22 (Python)", "mcp1-june", "python1_client.py", "auto", JUNE, False, slow=True
    ),
    PeerClient(
        "mcp-1.9", "mcp 1.9 (Python)", "mcp1-march", "python1_client.py", "auto", MARCH, False, slow=True
    ),
    PeerClient("typescript-2.4", "TypeScript SDK 2.4", "node", "typescript_client.mjs", "auto", MODERN),
    PeerClient("typescript-2.4-2025", "TypeScript SDK 2.4", "node", "typescript_client.mjs", "legacy", OLDER),
    PeerClient(
        "typescript-1.32", "TypeScript SDK 1.32", "typescript", "typescript1_client.mjs", "auto", OLDER
    ),
]
TRANSPORTS = ("http", "stdio")
