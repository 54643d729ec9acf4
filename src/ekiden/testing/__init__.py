"""For tests of tools that ask; ekiden's own tests use it too.

- `ScriptedClient` answers by question: one call, however many rounds it has.
- `Replicas` runs every round of a call in another instance of the server.
- `LedgerContract` is what every ledger of rounds must do, `TaskStoreContract` what every store of tasks must
  do, as tests to inherit.
- `crash_at` kills a process right before or right after it commits a change of a task.
- `check_replay` runs a call round by round and then replays it as a whole, and reports the first
  difference.

Knows: servers and their public ways in. Refuses to know: pytest, or any other test runner.
"""

from ekiden.errors import CallFailed, ReplayDiffers, Unanswered
from ekiden.testing.answers import CANCEL, DECLINE
from ekiden.testing.client import Round, ScriptedClient
from ekiden.testing.crashing import CRASH_POINTS, crash_at
from ekiden.testing.ledger_contract import LedgerContract
from ekiden.testing.replay import check_replay
from ekiden.testing.replicas import Replicas
from ekiden.testing.task_contract import TaskStoreContract

__all__ = [
    "CANCEL",
    "CRASH_POINTS",
    "DECLINE",
    "CallFailed",
    "LedgerContract",
    "ReplayDiffers",
    "Replicas",
    "Round",
    "ScriptedClient",
    "TaskStoreContract",
    "Unanswered",
    "check_replay",
    "crash_at",
]
