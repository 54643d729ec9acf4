"""Exceptions that never leave the library: whoever calls the part that raises one catches it, and turns it
into a result, a log line or one of the errors of `ekiden.errors`.

    Exception
    ├── Ended                    rounds: the leg ends here, with this outcome
    │   └── TaskCancelled        rounds: ... because its task was cancelled
    ├── Restart                  rounds: an earlier attempt at the round went further: run the handler again
    ├── MalformedAnswer          rounds: the value is not a result of the question's kind: an error
    ├── UnfitAnswer              rounds: the value breaks the rules of this question: it is asked again
    ├── StateRefused             rounds: a token that must not be used
    ├── ArgumentsInvalid         server: arguments do not fit their schema
    ├── OutputInvalid            server: what a tool returned does not fit its output schema
    ├── NotKept                  server: a value cannot be written to the journal
    ├── Unidentified             server: a value has no identity that another process knows
    ├── VerifierUnavailable      server: an access token cannot be verified right now
    ├── HttpRequestRefused       transports: an HTTP request is refused before it is whole
    ├── BrokenResponse           transports: an application has sent what cannot be a response
    ├── SessionsFull             transports: there is no room for one more session or stream
    ├── Unsayable                wire: a question that the client's protocol version cannot express
    ├── TooCostly                wire: to check the value would take far too long
    ├── FileClosed               stores: a SQLite file was closed before it could be read
    ├── EraChanged               client: the server may speak another protocol version than before
    ├── QuestionLeft             command line: the user left a question with Esc
    ├── ValueError
    │   ├── UnusableSchema       wire: no validator can be made of the schema
    │   └── FrontmatterError     wire: a text is not a `SKILL.md`
    └── OSError
        └── NotPrivate           stores: a folder belongs to somebody else
"""

from collections.abc import Mapping
from typing import Any

from ekiden.errors import EkidenError


class Ended(Exception):
    """Ends a leg with an `Outcome` that is not its handler's: a recorded one, or that of a lost claim."""

    def __init__(self, outcome: Any) -> None:
        super().__init__()
        self.outcome = outcome


class TaskCancelled(Ended):
    """The handler of a task has stopped because the task was cancelled."""


class Restart(Exception):
    """An earlier attempt at the round went further: run the handler again, over what that one did."""

    def __init__(self, entries: Mapping[str, Any]) -> None:
        super().__init__()
        self.entries = entries
        """The journal's entries of that attempt, by key, in order."""


class MalformedAnswer(Exception):
    """The value is not a result of the question's kind."""


class UnfitAnswer(Exception):
    """The value is a result of the right kind that breaks the rules of this question."""


class StateRefused(Exception):
    """A token that must not be used. The reason is for the log; the client learns only that it is refused."""


class ArgumentsInvalid(Exception):
    """Arguments do not fit their schema; the text names each field and why."""


class OutputInvalid(Exception):
    """A tool returned something that its own output schema does not allow."""


class NotKept(Exception):
    """A value cannot be written to the journal; the text says why, and what to change."""


class Unidentified(Exception):
    """A value has nothing that would be equal in another process."""


class NotPrivate(OSError):
    """What is at the path of a private folder belongs to another user, or is not a folder."""


class FileClosed(Exception):
    """A SQLite file was closed before it could be read; it is opened again."""


class EraChanged(Exception):
    """The server may not speak as it did: it was upgraded or downgraded. The request was not served."""

    def __init__(self, refusal: EkidenError, *, was_lost: bool = False) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        """What to raise if it turns out that nothing has changed."""
        self.was_lost = was_lost
        """Whether the session is gone, so that a new one is worth a try even in the same era."""


class QuestionLeft(Exception):
    """The user left a question at the terminal with Esc or Ctrl-D."""


class HttpRequestRefused(Exception):
    """An HTTP request is refused before it is whole, with this status, reason and headers."""

    def __init__(self, status: int, reason: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.headers = headers


class VerifierUnavailable(Exception):
    """An access token cannot be verified right now: its authorization server cannot be reached."""


class SessionsFull(Exception):
    """There is no room for one more session, or for one more stream."""


class Unsayable(Exception):
    """A question that the client's version of the protocol cannot express."""


class TooCostly(Exception):
    """Checking this value would take far too long."""


class UnusableSchema(ValueError):
    """No validator can be made of this schema; the text says why."""


class FrontmatterError(ValueError):
    """A text is not a `SKILL.md`; the text of this says why."""


class BrokenResponse(Exception):
    """An application has sent what cannot be a response."""
