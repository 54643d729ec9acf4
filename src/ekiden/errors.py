"""Every exception that ekiden raises on purpose, split by what the caller does next.

    EkidenError
    ├── UsageError               you misused the library: change the code that calls it
    │   ├── RegistrationError    a tool, prompt, resource or completion cannot be registered as written
    │   ├── NonDeterminismError  a handler took another way than in an earlier round of the same call
    │   ├── NotRecalled          the recorded value of a step does not fit its annotation any more
    │   └── Mistyped             a word of the command line cannot be read as the value that is wanted
    ├── ProtocolError            one JSON-RPC error: what the peer sent cannot be served
    │   ├── ParseError                 -32700  the bytes are not JSON
    │   ├── InvalidRequest             -32600  the JSON is not a JSON-RPC request
    │   │   └── EnvelopeError          what is broken is not the method's business: id, method or params
    │   ├── MethodNotFound             -32601
    │   ├── InvalidParams              -32602
    │   ├── InternalError              -32603
    │   ├── HeaderMismatch             -32020  the HTTP headers and the body disagree
    │   ├── MissingCapability          -32021  the client did not declare what the request needs
    │   ├── UnsupportedVersion         -32022
    │   └── ServerError                what the server answered to a client, with the server's own code
    │       └── CallFailed             the same, in a test with `ScriptedClient`
    ├── TransportError           the connection failed: nothing is wrong with the message
    │   ├── TooMuch              the peer sent more than the limits allow
    │   ├── HttpRefused          the server answered with an HTTP status that is not a success
    │   └── CallTimeout          the call took longer than the client allows: it was cancelled
    ├── InvalidResult            the server's result breaks the protocol or the tool's output schema
    ├── CannotAnswer             the server asks for something that no callback of the client answers
    ├── TooManyRounds            the call has more rounds than the client allows
    ├── CallCancelled            the task that the call had become was cancelled
    ├── StoreUnavailable         the store cannot be reached or written to right now: nothing was changed
    ├── StoreRefused             the store cannot keep this value, now or later: nothing was changed
    ├── LostClaim                another worker has the task, or it has ended: nothing was changed
    ├── IllegalMove              the state of the task does not allow this: nothing was changed
    ├── StepFailed               a step raised, now or in an earlier round: catch it as you would the original
    ├── ToolError                raised by a tool's author: the text is shown to the model
    │   └── CannotAsk            the client cannot be asked, or gave no fitting answer
    ├── Unanswered               in a test: the script has no answer to a question
    └── ReplayDiffers            in a test: a handler did something else when it was replayed

A `ProtocolError` carries its facts as attributes; its message may reach the wire, so nothing
secret goes into it. Handlers may raise any `ProtocolError` to answer with exactly that error.

Signals are exceptions too, but never leave the library: whoever calls the part that raises one catches it,
and turns it into a result, a log line or one of the errors above. They stand at the end of this file.

    Exception
    ├── Ended                    engine: the leg ends here, with this outcome
    │   └── TaskCancelled        engine: ... because its task was cancelled
    ├── Restart                  engine: an earlier attempt at the round went further: run the handler again
    ├── MalformedAnswer          engine: the value is not a result of the question's kind: an error
    ├── UnfitAnswer              engine: the value breaks the rules of this question: it is asked again
    ├── StateRefused             engine: a token that must not be used
    ├── ArgumentsInvalid         server: arguments do not fit their schema
    ├── OutputInvalid            server: what a tool returned does not fit its output schema
    ├── NotKept                  server: a value cannot be written to the journal
    ├── Unidentified             server: a value has no identity that another process knows
    ├── HttpRequestRefused       transports: an HTTP request is refused before it is whole
    ├── SessionsFull             transports: there is no room for one more session or stream
    ├── Unsayable                wire: a question that the client's protocol version cannot express
    ├── TooCostly                wire: to check the value would take far too long
    ├── FileClosed               stores: a SQLite file was closed before it could be read
    ├── EraChanged               client: the server may speak another protocol version than before
    ├── WorkerNotStarted         command line: the first worker process could not start
    ├── QuestionLeft             command line: the user left a question with Esc
    ├── ValueError
    │   └── UnusableSchema       wire: no validator can be made of the schema
    └── OSError
        └── NotPrivate           stores: a folder belongs to somebody else
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class EkidenError(Exception):
    """The root: catches everything that ekiden raises on purpose."""


class UsageError(EkidenError):
    """The library was called in a way that cannot work; the message says what to change."""


class RegistrationError(UsageError):
    """A handler cannot be registered as it is written."""


class NonDeterminismError(UsageError):
    """A handler that is run again over its journal did something else than before."""

    def __init__(self, message: str, *, before: str, now: str) -> None:
        super().__init__(f"{message}: before, {before}; now, {now}")
        self.before = before
        self.now = now


class NotRecalled(UsageError):
    """What the journal holds of a step does not fit the annotation of its function."""


class Mistyped(UsageError):
    """A word cannot be read as the wanted value. The message follows the word's name: "x must be ..."."""


class StepFailed(EkidenError):
    """A step raised. `type` and `message` are those of the exception, in whichever round it was."""

    def __init__(self, type: str, message: str) -> None:  # noqa: A002  the name that reads best at the catch
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class ToolError(EkidenError):
    """A tool failed in a way its caller should read: the text becomes the `isError` result."""


class CannotAsk(ToolError):
    """The client cannot be asked, or gave no fitting answer. In a tool this is the text of its result."""


class StoreRefused(EkidenError):
    """The store cannot keep a value, however often it is tried: it is too large, or no column takes it."""


class StoreUnavailable(EkidenError):
    """The store cannot be reached or written to right now. Nothing was changed: try again."""


class LostClaim(EkidenError):
    """Another worker holds the task by now, or it has ended. Nothing was changed."""


class IllegalMove(EkidenError):
    """The task is in a state that does not allow this. Nothing was changed."""

    def __init__(self, state: str, move: str) -> None:
        super().__init__(f"a task that is {state} cannot {move}")
        self.state = state
        self.move = move


class ProtocolError(EkidenError):
    """A JSON-RPC error. `code`, `message` and `data` are what the peer sees."""

    default_code: ClassVar[int] = -32603

    def __init__(self, message: str, *, data: Any = None, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.code = self.default_code if code is None else code


class ParseError(ProtocolError):
    """The bytes are not JSON, or JSON that no peer may send: too deep, not UTF-8, NaN."""

    default_code = -32700


class InvalidRequest(ProtocolError):
    """The JSON is not one JSON-RPC request or notification."""

    default_code = -32600


class EnvelopeError(InvalidRequest):
    """The envelope is broken; `request_id` is what could be read of it."""

    def __init__(self, message: str, request_id: int | str | None, *, notification: bool = False) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.notification = notification
        """Whether it was a notification, which nobody may answer, not even with an error."""


class MethodNotFound(ProtocolError):
    """The method is not implemented here, or not part of the protocol version in use."""

    default_code = -32601


class InvalidParams(ProtocolError):
    """The parameters are malformed, or name something that does not exist."""

    default_code = -32602


class InternalError(ProtocolError):
    """The server failed; the reason is in its log, not in the message."""


class HeaderMismatch(ProtocolError):
    """A mirrored HTTP header is missing, malformed, or differs from the body."""

    default_code = -32020


class MissingCapability(ProtocolError):
    """The request needs client capabilities that it does not declare."""

    default_code = -32021

    def __init__(self, required: Mapping[str, Any]) -> None:
        self.required = dict(required)
        super().__init__(
            f"The client did not declare a required capability: {', '.join(sorted(required))}",
            data={"requiredCapabilities": self.required},
        )


class UnsupportedVersion(ProtocolError):
    """The request's protocol version is not spoken here."""

    default_code = -32022

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        self.requested = requested
        self.supported = tuple(supported)
        super().__init__(
            "Unsupported protocol version", data={"supported": list(supported), "requested": requested}
        )


class ServerError(ProtocolError):
    """The server answered with a JSON-RPC error: `code`, `message` and `data` are its own."""


class TransportError(EkidenError):
    """The connection to the peer failed or was closed."""


class TooMuch(TransportError):
    """The peer sent more than the limits allow: a message, a line, a head or a stream is too large."""


class HttpRefused(TransportError):
    """The server refused on the level of HTTP; `message` is its JSON-RPC error, if it sent one."""

    def __init__(self, status: int, message: dict[str, Any] | None) -> None:
        super().__init__(f"The server refused the request with HTTP status {status}")
        self.status = status
        self.message = message


class CallTimeout(TransportError):
    """The call did not end in time; it was cancelled at the server."""


class InvalidResult(EkidenError):
    """The server's result breaks the protocol, or the tool's own output schema."""


class CannotAnswer(EkidenError):
    """The server asks for something that no callback answers. The user was not asked anything."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        asked = ", ".join(f"{key} ({kind})" for key, kind in kinds.items())
        super().__init__(f"No callback answers {asked}; give the client one")
        self.kinds = dict(kinds)


class TooManyRounds(EkidenError):
    """The call did not end within the rounds that it may have."""


class CallCancelled(EkidenError):
    """The task that the call had become was cancelled, by somebody else or by the server."""


class CallFailed(ServerError):
    """The server answered a scripted client with a JSON-RPC error."""


class Unanswered(EkidenError):
    """A question came up that the script has no answer for."""


class ReplayDiffers(EkidenError):
    """Two runs did different things; `straight` and `replayed` are the first effects that differ."""

    def __init__(self, position: int, straight: str, replayed: str) -> None:
        super().__init__(
            f"Effect {position + 1} differs: in one run it is {straight}, replayed it is {replayed}. "
            "Whatever varies between rounds (time, ids, I/O) belongs into ctx.now, ctx.uuid or ctx.step"
        )
        self.position = position
        self.straight = straight
        self.replayed = replayed


# Signals: caught within the library, never seen outside


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


class WorkerNotStarted(Exception):
    """The first worker process could not start, so no other can. `reason` is what to tell the user."""

    def __init__(self, reason: EkidenError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class QuestionLeft(Exception):
    """The user left a question at the terminal with Esc or Ctrl-D."""


class HttpRequestRefused(Exception):
    """An HTTP request is refused before it is whole, with this status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class SessionsFull(Exception):
    """There is no room for one more session, or for one more stream."""


class Unsayable(Exception):
    """A question that the client's version of the protocol cannot express."""


class TooCostly(Exception):
    """Checking this value would take far too long."""


class UnusableSchema(ValueError):
    """No validator can be made of this schema; the text says why."""
