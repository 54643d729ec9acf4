"""Approvals that count once, and a handler that keeps its own state: the code of "why replay"."""

from typing import Any

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from ekiden import Context, InputRequired, Server

server = Server("shop", store="memory:")


class Payments:
    """A payment service that charges once for each idempotency key."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}

    async def charge(self, amount: int, *, idempotency_key: str) -> str:
        self.charges.setdefault(idempotency_key, amount)
        return f"Paid {amount}."


payments = Payments()


async def charge(amount: int, ctx: Context) -> str:
    """Charge through a payment service that knows idempotency keys."""
    return await payments.charge(amount, idempotency_key=ctx.step_key)


@server.tool(once=True)
async def pay(amount: int, ctx: Context) -> str:
    """Charge the user, after an approval that counts once."""
    answer = await ctx.elicit(f"Pay {amount}?", bool)
    if answer.action != "accept" or not answer.data:
        return "Not paid."
    return await ctx.step(charge, amount, ctx=ctx)


def ask(message: str) -> ElicitRequest:
    schema = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def text(response: Any) -> str:
    assert isinstance(response, ElicitResult)
    return str((response.content or {}).get("value"))


@server.tool
async def wizard(ctx: Context) -> InputRequired | str:
    """Keep your own state: two rounds, by hand."""
    responses = ctx.input_responses
    if ctx.request_state is None:
        return InputRequired({"name": ask("What is your name?")}, request_state="named")
    name = text(responses["name"])
    if "age" not in responses:
        return InputRequired({"age": ask(f"Hi {name}! How old are you?")}, request_state="aged")
    return f"Welcome, {name}! You are {text(responses['age'])} years old."


@server.tool(task="deferred")
async def order(ctx: Context) -> InputRequired | str:
    """One round by hand, and then a task that asks in its body."""
    if "dish" not in ctx.input_responses:
        return InputRequired({"dish": ask("Which dish?")})
    dish = text(ctx.input_responses["dish"])
    await ctx.background()
    answer = await ctx.elicit(f"{dish} is out. Take the soup?", bool)
    return "Soup." if answer.action == "accept" and answer.data else "Nothing."


if __name__ == "__main__":
    server.run()
