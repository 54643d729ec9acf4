import json

from ekiden.errors import InvalidParams
from ekiden.rounds.outcome import Complete, Failed
from ekiden.wire.modern import Modern

dialect = Modern({"name": "s", "version": "1"})


def test_a_complete_outcome_is_spelled_as_a_result() -> None:
    assert json.loads(Complete({"a": 1}).render(dialect, 5))["result"]["a"] == 1


def test_a_failed_outcome_is_spelled_as_an_error() -> None:
    response = json.loads(Failed(InvalidParams("no")).render(dialect, "x"))
    assert response == {"jsonrpc": "2.0", "id": "x", "error": {"code": -32602, "message": "no"}}


def test_a_result_spelled_ahead_can_be_read_as_a_dict() -> None:
    assert Complete(dialect.result({"a": 1})).as_dict()["a"] == 1
    assert Complete({"a": 1}).as_dict() == {"a": 1}
