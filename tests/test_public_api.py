import pytest

import ekiden

PUBLIC = [
    "Accepted",
    "Answer",
    "CacheHint",
    "CallCancelled",
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
    "HttpLimits",
    "InputRequired",
    "Interim",
    "InvalidParams",
    "InvalidResult",
    "Middleware",
    "MissingCapability",
    "NonDeterminismError",
    "Outcome",
    "PendingCall",
    "ProtocolError",
    "RegistrationError",
    "Request",
    "Retry",
    "RoundLimits",
    "Server",
    "ServerError",
    "SessionLimits",
    "StepFailed",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskHandle",
    "TaskLimits",
    "TaskSnapshot",
    "TooManyRounds",
    "ToolError",
    "TransportError",
    "UsageError",
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
