"""Whatever a round ended with is the same when it comes out of the ledger."""

import pytest

from ekiden.errors import ProtocolError
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome, Task
from ekiden.server.rounds.owning.kept_outcomes import decode_outcome, encode_outcome
from ekiden.wire.tasks import TaskView


@pytest.mark.parametrize(
    "outcome",
    [
        Complete({"content": []}),
        Interim({"who": {"method": "roots/list"}}, "state"),
        Interim({}, None),
        Task(TaskView(task_id="t1", status="working", created_at="a", last_updated_at="b", ttl_ms=1000)),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_an_outcome_is_kept_as_it_was(outcome: Outcome) -> None:
    assert decode_outcome(encode_outcome(outcome)) == outcome


def test_an_error_keeps_its_code_its_words_and_its_data() -> None:
    kept = decode_outcome(encode_outcome(Failed(ProtocolError("no", code=-32021, data={"roots": {}}))))
    assert isinstance(kept, Failed)
    assert (kept.error.code, kept.error.message, kept.error.data) == (-32021, "no", {"roots": {}})
