import importlib.metadata
import tomllib
from pathlib import Path

import pytest

import ekiden
from ekiden import extensions

PUBLIC = [
    "Accepted",
    "Answer",
    "Audio",
    "Auth",
    "CacheHint",
    "CallCancelled",
    "CallLost",
    "CallNext",
    "CallTimeout",
    "Cancelled",
    "CancelledTask",
    "CannotAnswer",
    "Client",
    "ClientLimits",
    "Complete",
    "Context",
    "Declined",
    "EkidenError",
    "Failed",
    "File",
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "Image",
    "InputRequired",
    "InsufficientScope",
    "Interim",
    "IntrospectionVerifier",
    "InvalidParams",
    "InvalidResult",
    "JWTVerifier",
    "LeftOut",
    "MailNotifier",
    "Middleware",
    "MissingCapability",
    "NonDeterminismError",
    "Notice",
    "Outcome",
    "Outgoing",
    "OutgoingMiddleware",
    "Pages",
    "PendingCall",
    "Person",
    "Principal",
    "ProtocolError",
    "Rate",
    "RateLimit",
    "Recording",
    "RegistrationError",
    "Request",
    "ResourceNotFound",
    "Retry",
    "RoundLimits",
    "SendOn",
    "Server",
    "ServerCard",
    "ServerError",
    "SessionLimits",
    "StaticTokens",
    "StatusError",
    "StepFailed",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskHandle",
    "TaskLimits",
    "TaskSnapshot",
    "TokenVerifier",
    "TooManyRounds",
    "TooMuch",
    "ToolError",
    "TransportError",
    "UnverifiedSkill",
    "UsageError",
    "VerifiedToken",
    "WebhookNotifier",
    "WrongAnswer",
]


def test_the_public_names_are_these_and_no_others() -> None:
    assert ekiden.__all__ == PUBLIC


@pytest.mark.parametrize("name", ekiden.__all__)
def test_every_public_name_resolves_and_stays_the_same(name: str) -> None:
    assert getattr(ekiden, name) is not None
    assert getattr(ekiden, name) is getattr(ekiden, name)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'ekiden' has no attribute 'NoSuchName'"):
        _ = ekiden.NoSuchName


def test_the_names_are_in_order() -> None:
    assert sorted(ekiden.__all__) == ekiden.__all__


def test_the_version_is_the_one_that_was_built() -> None:
    assert ekiden.__version__ == importlib.metadata.version("ekiden")
    written = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert tomllib.loads(written)["project"]["dynamic"] == ["version"], "it is written in one place"


def test_the_public_names_of_extensions_are_these() -> None:
    assert extensions.__all__ == [
        "ClientExtension",
        "ClientRequest",
        "Extension",
        "ExtensionContext",
        "ExtensionResult",
        "Interrupted",
        "LoadedSkill",
        "SkillEntry",
        "SkillFile",
        "Skills",
    ]
