"""Identifiers of extensions (SEP-2133: the rules for keys of `_meta`, with a prefix)."""

import pytest

from ekiden import RegistrationError
from ekiden.wire.extensions.names import CORE_METHODS, check_identifier, check_method, check_result_type

GOOD = ["com.example/receipts", "io.modelcontextprotocol/tasks", "a.b/c", "com.ex-ample/a.b_c-d", "com.e1/2"]
BAD = [
    "",
    "receipts",
    "/receipts",
    "example/receipts",
    "com.example/",
    "com.example",
    "com..example/receipts",
    ".com.example/receipts",
    "com.example./receipts",
    "com.1example/receipts",
    "com.-example/receipts",
    "com.example-/receipts",
    "com.example/-receipts",
    "com.example/receipts.",
    "com.example/re ceipts",
    "com.example/a/b",
    "com.exämple/receipts",
    "com.example/receipts\n",
    None,
    7,
]


@pytest.mark.parametrize("identifier", GOOD)
def test_an_identifier_is_a_reversed_domain_and_a_name(identifier: str) -> None:
    assert check_identifier(identifier) == identifier


@pytest.mark.parametrize("identifier", BAD)
def test_anything_else_is_refused_with_an_example(identifier: object) -> None:
    with pytest.raises(RegistrationError, match=r"'com\.example/receipts'"):
        check_identifier(identifier)


@pytest.mark.parametrize("method", ["", "a b", "a//b", "/a", "a/", "é", "a\n", 3, None])
def test_a_method_is_a_name_that_a_header_can_carry(method: object) -> None:
    with pytest.raises(RegistrationError, match="not the name of a method"):
        check_method("com.example/x", method)


def test_methods_of_the_protocol_are_taken() -> None:
    for method in CORE_METHODS:
        with pytest.raises(RegistrationError, match="is a method of the protocol"):
            check_method("com.example/x", method)


def test_result_types_of_the_protocol_are_taken() -> None:
    for kind in ("complete", "input_required"):
        with pytest.raises(RegistrationError, match="is a result type of the protocol"):
            check_result_type("com.example/x", kind)
    for wrong in ("", None, 1):
        with pytest.raises(RegistrationError, match="is not the name of a result type"):
            check_result_type("com.example/x", wrong)
    assert check_result_type("com.example/x", "receipt") == "receipt"
