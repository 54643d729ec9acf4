"""Scripted answers that do not fit their question are named at once, not a hundred rounds later."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from ekiden import Context, InputRequired, Server
from ekiden.testing import CANCEL, CallFailed, ScriptedClient, Unanswered, WrongAnswer


class Seats(BaseModel):
    seats: Annotated[int, Field(ge=1, le=4)]
    train: Literal["nozomi", "kodama"] = "nozomi"


class Palindrome(BaseModel):
    """A form whose rule no schema can say."""

    word: str

    @field_validator("word")
    @classmethod
    def _reads_the_same(cls, word: str) -> str:
        assert word == word[::-1], "not a palindrome"
        return word


@pytest.fixture
def server() -> Server:
    made = Server("asks", keys=[b"k" * 32], store="memory:")

    @made.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("How many seats?", Seats, key="seats")
        return f"{answer.action} {answer.data}"

    @made.tool
    async def spell(ctx: Context) -> str:
        return (await ctx.elicit("Which word?", Palindrome, key="word")).action

    @made.tool(task="required")
    async def spell_later(ctx: Context) -> str:
        return (await ctx.elicit("Which word?", Palindrome, key="word")).action

    @made.tool
    async def act(ctx: Context) -> str:
        answer = await ctx.elicit("What next?", Action, key="next")
        return answer.data.action if answer.action == "accept" else "nothing"

    @made.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in.", "https://rail.example", key="login")).action

    @made.tool
    async def think(ctx: Context) -> str:
        return str((await ctx.sample("A sight?", max_tokens=9, key="sight")).model)

    @made.tool
    async def look(ctx: Context) -> str:
        return str(len(await ctx.list_roots(key="where")))

    @made.tool
    async def again(ctx: Context) -> Any:
        """Ask by hand, with the same words, until it has been asked three times."""
        asked = int(ctx.request_state or "0")
        request = {"method": "elicitation/create", "params": {"message": "Done?", "requestedSchema": DONE}}
        return (
            "done"
            if asked == 3
            else InputRequired(input_requests={"done": request}, request_state=f"{asked + 1}")
        )

    return made


DONE = {"type": "object", "properties": {"value": {"type": "boolean"}}, "required": ["value"]}


class Action(BaseModel):
    action: str


@pytest.mark.parametrize(
    ("tool", "answer", "problem"),
    [
        ("book", {"seats": 9}, "seats: 9 is greater than the maximum of 4"),
        ("book", {"train": "kodama"}, 'content: "seats" is a required property'),
        ("book", {"seats": 2, "trian": "kodama"}, "the form has no field 'trian'; it has seats, train"),
        ("book", 2, "the form has the fields seats, train: give a dict, not 2"),
        ("book", None, 'content: "seats" is a required property'),
        ("spell", object(), "object"),
        ("visit", False, "a page is answered by None, DECLINE or CANCEL, not False"),
        ("think", 5, "a model answers with text, not 5"),
        ("think", CANCEL, "a model answers with text, not"),
        ("look", ["home"], "roots are URIs such as 'file:///home', not ['home']"),
    ],
)
async def test_an_answer_that_does_not_fit_is_named_at_once(
    server: Server, tool: str, answer: Any, problem: str
) -> None:
    client = ScriptedClient(server, lambda _key, _request: answer)
    with pytest.raises(WrongAnswer, match=r"The answer to '.+' \('.+'\) was not sent: ") as told:
        await client.call_tool(tool)
    assert problem in told.value.problem
    assert len(client.rounds) == 1


async def test_an_answer_that_only_the_server_finds_wrong_is_named_when_it_is_asked_again(
    server: Server,
) -> None:
    client = ScriptedClient(server, {"word": "train"}, tasks=True)
    for tool in ("spell", "spell_later"):
        with pytest.raises(CallFailed, match=r"asks 'Which word\?' again: it did not accept .*train"):
            await client.call_tool(tool)
    assert (await ScriptedClient(server, {"word": "kayak"}).call_tool("spell"))["content"]


async def test_a_function_may_correct_its_answer(server: Server) -> None:
    words = iter(["train", "kayak"])
    for_rounds = ScriptedClient(server, lambda _key, _request: next(words))
    assert (await for_rounds.call_tool("spell"))["content"][0]["text"] == "accept"
    assert len(for_rounds.rounds) == 3
    words = iter(["train", "kayak"])
    for_tasks = ScriptedClient(server, lambda _key, _request: next(words), tasks=True)
    assert (await for_tasks.call_tool("spell_later"))["content"][0]["text"] == "accept"


async def test_a_whole_result_is_sent_as_it_is_so_that_a_wrong_one_can_be_tested(server: Server) -> None:
    content = {"action": "accept", "content": {"seats": 9}}
    answers = iter([content, {"action": "decline"}])
    client = ScriptedClient(server, lambda _key, _request: next(answers))
    assert (await client.call_tool("book"))["content"][0]["text"] == "decline None"
    assert len(client.rounds) == 3


async def test_a_form_may_have_a_field_called_action(server: Server) -> None:
    client = ScriptedClient(server, {"next": {"action": "dance"}})
    assert (await client.call_tool("act"))["content"][0]["text"] == "dance"


async def test_a_name_that_is_nearly_the_question_is_pointed_out(server: Server) -> None:
    with pytest.raises(
        Unanswered, match=r"no answer to 'How many seats\?' \(key 'seats'\); did you mean it by 'saets'"
    ):
        await ScriptedClient(server, {"saets": {"seats": 1}}).call_tool("book")


async def test_a_tool_that_asks_the_same_by_hand_is_not_stopped_for_a_function(server: Server) -> None:
    client = ScriptedClient(server, lambda _key, _request: False)
    assert (await client.call_tool("again"))["content"][0]["text"] == "done"
    with pytest.raises(CallFailed, match="it did not accept"):
        await ScriptedClient(server, {"done": False}).call_tool("again")


async def test_a_task_is_not_given_to_a_client_that_does_not_ask_for_it(server: Server) -> None:
    with pytest.raises(CallFailed, match=r"ScriptedClient\(\.\.\., tasks=True\) follows it") as told:
        await ScriptedClient(server, {"word": "kayak"}).call_tool("spell_later")
    assert told.value.code == -32021
