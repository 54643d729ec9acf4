"""Forms of types that keep fields which they do not know: what they keep is theirs."""

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from ekiden.server.questions.forms import form_for


class LooseModel(BaseModel):
    model_config = ConfigDict(extra="allow")

    ok: bool


class LooseDict(TypedDict):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    ok: bool


@pytest.mark.parametrize("kind", [LooseModel, LooseDict])
def test_what_a_handler_does_to_an_unknown_field_does_not_reach_the_answer(kind: Any) -> None:
    answer = {"action": "accept", "content": {"ok": True, "more": [1]}}
    data: Any = form_for(kind).read(answer).data
    kept = data["more"] if isinstance(data, dict) else data.more
    assert kept == [1]
    kept.append(2)
    assert answer == {"action": "accept", "content": {"ok": True, "more": [1]}}
