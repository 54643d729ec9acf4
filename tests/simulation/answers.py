"""What the user, the model and the client answer: the same to the same question, in every world of a seed."""

from collections.abc import Mapping
from random import Random
from typing import Any

__all__ = ["NONSENSE", "answer_to", "unfit"]

NONSENSE: dict[str, Any] = {"of": "no kind"}
_ROOTS = {"roots": [{"uri": "file:///work", "name": "work"}]}


def answer_to(seed: int, request: Mapping[str, Any], flips: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The answer to one input request; a question in `flips` is answered otherwise."""
    params = request.get("params") or {}
    if request["method"] == "roots/list":
        return _ROOTS
    if request["method"] == "sampling/createMessage":
        label = params["messages"][0]["content"]["text"].split()[0]
        text = f"said {label}{' otherwise' if label in flips else ''}"
        return {"role": "assistant", "model": "simulated", "content": {"type": "text", "text": text}}
    label = params["message"].split()[0]
    rng = Random(f"{seed} {label} {label in flips}")
    action = rng.choices(("accept", "decline", "cancel"), (8, 1, 1))[0]
    if action != "accept" or params.get("mode") == "url":
        return {"action": action}
    kind = params["requestedSchema"]["properties"]["value"]["type"]
    yes = bool(rng.getrandbits(1)) != (label in flips)
    value: Any = {"boolean": yes, "string": f"text {rng.randrange(99)}", "integer": rng.randrange(99)}[kind]
    return {"action": "accept", "content": {"value": value}}


def unfit(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """An answer of the right kind that breaks the form, where that can be."""
    if request["method"] == "elicitation/create" and request["params"].get("mode") != "url":
        return {"action": "accept", "content": {"value": [{}]}}
    return None
