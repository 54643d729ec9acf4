"""What the clients call, what they are asked for it and answer, and what must come of it."""

from typing import Any, NamedTuple

Json = dict[str, Any]
Asked = tuple[str, str]
"""The method of a question, and its text."""


class Case(NamedTuple):
    step: Json
    rounds: list[dict[Asked, Json]]
    """The questions of each round with their answers; none where a round ends with state only.

    For a client of the older era all of it is one request; the questions come in the same order.
    """
    outcome: Json

    @property
    def answers(self) -> dict[str, list[Json]]:
        """The answers by the text of the question, in the order in which they are given."""
        by_text: dict[str, list[Json]] = {}
        for questions in self.rounds:
            for (_, text), answer in questions.items():
                by_text.setdefault(text, []).append(answer)
        return by_text


def elicit(text: str) -> Asked:
    return ("elicitation/create", text)


def sample(text: str) -> Asked:
    return ("sampling/createMessage", text)


ROOTS: Asked = ("roots/list", "roots")


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


def value(given: Any) -> Json:
    return accept(value=given)


def says(text: str) -> Json:
    return {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}


DECLINE: Json = {"action": "decline"}
CANCEL: Json = {"action": "cancel"}
TWO_ROOTS: Json = {"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b"}]}


def call(name: str, **arguments: Any) -> Json:
    return {"do": "call", "name": name, "arguments": arguments}


def text(wanted: str) -> Json:
    return {"text": wanted}


VIOLATION = "an answer that violates the schema is asked for again"
"""Our own client does not send such an answer."""

CASES = {
    "one ask": Case(
        call("confirm", item="tea"),
        [{elicit("Order tea?"): accept(quantity=2, gift=True)}],
        text("tea: 2, gift True"),
    ),
    "an optional field left out": Case(
        call("confirm", item="rice"),
        [{elicit("Order rice?"): accept(quantity=1)}],
        text("rice: 1, gift False"),
    ),
    "decline": Case(call("confirm", item="salt"), [{elicit("Order salt?"): DECLINE}], text("salt: decline")),
    "cancel": Case(call("confirm", item="soap"), [{elicit("Order soap?"): CANCEL}], text("soap: cancel")),
    "three kinds at once": Case(
        call("survey"),
        [{elicit("Your name?"): value("Mio"), sample("A haiku"): says("old pond"), ROOTS: TWO_ROOTS}],
        text("Mio | old pond | file:///a, file:///b"),
    ),
    "the model": Case(call("poem"), [{sample("A sonnet"): says("Shall I")}], text("Shall I")),
    "the roots": Case(call("places"), [{ROOTS: TWO_ROOTS}], text('{"places":["file:///a","file:///b"]}')),
    "two of a kind at once": Case(
        call("twins"),
        [{elicit("Left?"): value("yes"), elicit("Right?"): value("no")}],
        text("left yes, right no"),
    ),
    "a page to open": Case(
        call("visit"), [{elicit("Please sign in."): {"action": "accept"}}], text("visit: accept")
    ),
    "three rounds": Case(
        call("journey"),
        [
            {elicit("Which city?"): value("Sendai")},
            {elicit("How many days in Sendai?"): value(3)},
            {sample("Plan 3 days in Sendai."): says("Walk.")},
        ],
        text("Sendai, 3 days: Walk."),
    ),
    "an answer that breaks a rule of the server is asked for again": Case(
        call("confirm", item="dates"),
        [{elicit("Order dates?"): accept(quantity=7)}, {elicit("Order dates?"): accept(quantity=5)}],
        text("dates: 5, gift False"),
    ),
    VIOLATION: Case(
        call("confirm", item="figs"),
        [
            {elicit("Order figs?"): accept(quantity=50)},
            {elicit("Order figs?"): accept(quantity="many")},
            {elicit("Order figs?"): accept()},
            {elicit("Order figs?"): accept(quantity=5)},
        ],
        text("figs: 5, gift False"),
    ),
    "steps": Case(
        call("pay", order="order-1"),
        [{elicit("Pay 7?"): value(True)}, {elicit("Send receipt 6?"): value(False)}],
        text("paid True, sent False, receipt 6"),
    ),
    "manual": Case(
        call("manual"),
        [
            {elicit("Who?"): value("Aki"), sample("Draft"): says("Dear"), ROOTS: TWO_ROOTS},
            {elicit("Sure?"): value("very")},
        ],
        text("Aki, Dear, file:///a, very"),
    ),
    "manual without a state": Case(
        call("stateless"), [{elicit("Which colour?"): value("red")}], text("the colour is red, state None")
    ),
    "checkpoints": Case(call("rests"), [{}, {}], text("rested after 3 and 5")),
    "a checkpoint and an ask": Case(
        call("rests_and_asks"), [{}, {elicit("Rested?"): value(True)}], text("rested True")
    ),
    "manual with a state only": Case(call("counts"), [{}, {}], text("counted to 2")),
    "a prompt that asks": Case(
        {"do": "get", "name": "briefing", "arguments": {"topic": "trains"}},
        [{elicit("Who reads about trains?"): value("children")}],
        text("Explain trains to children."),
    ),
    "a resource that asks": Case(
        {"do": "read", "uri": "note://sealed"},
        [{elicit("The password?"): value("sesame")}],
        text("opened with sesame"),
    ),
    "a resource template that asks": Case(
        {"do": "read", "uri": "note://mio/sealed"},
        [{elicit("The password of mio?"): value("hoshi")}],
        text("mio, opened with hoshi"),
    ),
    "as many rounds as a client goes along with": Case(
        call("many", questions=10),
        [{elicit(f"Number {number}?"): value(number)} for number in range(1, 11)],
        text("the sum is 55"),
    ),
    "more rounds than a client goes along with": Case(
        call("many", questions=11),
        [{elicit(f"Number {number}?"): value(number)} for number in range(1, 11)],
        {"gaveUpAfter": 10},
    ),
}


FAILED: Json = {"failed": True}

OLDER_CASES = {
    **{name: case for name, case in CASES.items() if name != "more rounds than a client goes along with"},
    "more questions than there are rounds": Case(
        call("many", questions=11),
        [{elicit(f"Number {number}?"): value(number)} for number in range(1, 12)],
        text("the sum is 66"),
    ),
}
"""For clients of the older era: a question is no round of theirs, so nobody counts them."""


def unasked(*names: str) -> dict[str, Case]:
    """Cases that cannot go well, because the version has no such question."""
    return {name: Case(CASES[name].step, [], FAILED) for name in names}


WITHOUT_PAGES = {**OLDER_CASES, **unasked("a page to open")}
"""2025-06-18: a form is all that a user can be asked with."""

WITHOUT_FORMS = {
    **{name: CASES[name] for name in ("the model", "the roots", "checkpoints", "manual with a state only")},
    **unasked("one ask", "decline", "three rounds", "manual", "a page to open", "a prompt that asks"),
    **unasked("a resource that asks", "a resource template that asks"),
}
"""2025-03-26: the user cannot be asked at all."""

BY_VERSION = {
    "2026-07-28": CASES,
    "2025-11-25": OLDER_CASES,
    "2025-06-18": WITHOUT_PAGES,
    "2025-03-26": WITHOUT_FORMS,
}


def missing(**capabilities: Any) -> Json:
    return {"code": -32021, "requiredCapabilities": capabilities}


UNABLE = {
    "one ask": Case(call("confirm", item="ink"), [], missing(elicitation={"form": {}})),
    "manual": Case(call("manual"), [], missing(elicitation={"form": {}})),
    "a page to open": Case(call("visit"), [], missing(elicitation={"url": {}})),
    "nothing asked": Case(call("counts"), [{}, {}], text("counted to 2")),
}
"""For a client that declares no capability at all."""

OLDER_UNABLE = {
    **{name: case._replace(outcome=FAILED) for name, case in UNABLE.items()},
    "nothing asked": UNABLE["nothing asked"],
}
"""The older era has no error for it: the tool fails."""


def able(version: str, *, checks_answers: bool = False) -> dict[str, Case]:
    cases = BY_VERSION[version]
    return {name: case for name, case in cases.items() if not (checks_answers and name == VIOLATION)}


def unable(version: str) -> dict[str, Case]:
    return UNABLE if version == "2026-07-28" else OLDER_UNABLE


STEPS = ["order-1 reserve", "order-1 charge", "order-1 send", "order-1 close", "rests one", "rests three"]
"""The lines that the steps of all cases leave behind."""


def steps(version: str) -> list[str]:
    """Those that the cases of a version leave behind."""
    return [line for line in STEPS if line.startswith("rests") or "steps" in able(version)]


ORDER_SCHEMA = {
    "type": "object",
    "properties": {
        "quantity": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many"},
        "gift": {"type": "boolean", "default": False},
    },
    "required": ["quantity"],
}


def plan(version: str, *, concurrent: bool, checks_answers: bool) -> Json:
    """The cases as the clients read them.

    `together` is the number of questions that must be open before any is answered: a call whose questions
    come one after the other does not end then.
    """

    def planned(case: Case) -> Json:
        together = max(1, len(case.rounds[0])) if concurrent and len(case.rounds) == 1 else 1
        return {"step": case.step, "answers": case.answers, "together": together}

    groups = {"able": able(version, checks_answers=checks_answers), "unable": unable(version)}
    return {group: {name: planned(case) for name, case in cases.items()} for group, cases in groups.items()}
