"""For tests of tools that ask; ekiden's own tests use it too.

- `ScriptedClient` answers by question: one call, however many rounds it has, also where it becomes a task.
- `Replicas` runs every round of a call in another instance of the server.
- `LedgerContract` is what every ledger of rounds must do, `TaskStoreContract` what every store of tasks must
  do, `SessionStoreContract` what every store of sessions must do, `PeopleStoreContract` what every store of
  questions to people must do, `StoryStoreContract` what every store of stories must do, and `BusContract`
  what every bus between processes must do, as tests to inherit.
- `crash_at` kills a process right before or right after it commits a change of a task.
- `check_replay` runs a call round by round and then replays it as a whole, and reports the first
  difference.

Knows: servers and their public ways in. Refuses to know: pytest, or any other test runner.
"""

from ekiden.errors import CallFailed, ReplayDiffers, Unanswered, WrongAnswer
from ekiden.testing.answers import CANCEL, DECLINE
from ekiden.testing.bus_contract import BusContract
from ekiden.testing.client import LogMessage, Progress, Round, ScriptedClient
from ekiden.testing.crashing import CRASH_POINTS, crash_at
from ekiden.testing.ledger_contract import LedgerContract
from ekiden.testing.people_contract import PeopleStoreContract
from ekiden.testing.replay import check_replay
from ekiden.testing.replicas import Replicas
from ekiden.testing.session_contract import SessionStoreContract
from ekiden.testing.story_contract import StoryStoreContract
from ekiden.testing.task_contract import TaskStoreContract

__all__ = [
    "CANCEL",
    "CRASH_POINTS",
    "DECLINE",
    "BusContract",
    "CallFailed",
    "LedgerContract",
    "LogMessage",
    "PeopleStoreContract",
    "Progress",
    "ReplayDiffers",
    "Replicas",
    "Round",
    "ScriptedClient",
    "SessionStoreContract",
    "StoryStoreContract",
    "TaskStoreContract",
    "Unanswered",
    "WrongAnswer",
    "check_replay",
    "crash_at",
]
