"""Each kind of question in both styles, straight and by hand: the code of the pages on asking."""

from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from ekiden import Context, InputRequired, Server

server = Server("styles")

# The user


class Contact(BaseModel):
    name: str
    newsletter: bool = False


@server.tool
async def sign_up(ctx: Context) -> str:
    """Sign the user up."""
    answer = await ctx.elicit("Who are you?", Contact)
    if answer.action != "accept":
        return "Nobody was signed up."
    return f"Welcome, {answer.data.name}!"


FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "newsletter": {"type": "boolean", "default": False}},
    "required": ["name"],
}


def ask_contact(message: str) -> InputRequired:
    form = ElicitRequestFormParams(message=message, requested_schema=FORM)
    return InputRequired({"contact": ElicitRequest(params=form)})


@server.tool
def sign_up_by_hand(ctx: Context) -> InputRequired | str:
    """Sign the user up."""
    answer = ctx.input_responses.get("contact")
    if not isinstance(answer, ElicitResult):
        return ask_contact("Who are you?")
    if answer.action != "accept":
        return "Nobody was signed up."
    try:
        contact = Contact.model_validate(answer.content)
    except ValidationError:
        return ask_contact("That cannot be. Who are you?")
    return f"Welcome, {contact.name}!"


# The model


def words(reply: object) -> str:
    assert isinstance(reply, CreateMessageResultWithTools)
    return " ".join(block.text for block in reply.content_as_list if block.type == "text")


@server.tool
async def slogan(product: str, ctx: Context) -> str:
    """Find a slogan: the model writes one, and makes it shorter."""
    first = await ctx.sample(f"A slogan for {product}.", max_tokens=50)
    shorter = await ctx.sample(f"Shorter: {words(first)}", max_tokens=20)
    return words(shorter)


def ask_model(key: str, text: str, max_tokens: int) -> InputRequired:
    message = SamplingMessage(role="user", content=TextContent(text=text))
    params = CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    return InputRequired({key: CreateMessageRequest(params=params)})


@server.tool
def slogan_by_hand(product: str, ctx: Context) -> InputRequired | str:
    """Find a slogan: the model writes one, and makes it shorter."""
    answers = ctx.input_responses
    if "first" not in answers:
        return ask_model("first", f"A slogan for {product}.", 50)
    if "shorter" not in answers:
        return ask_model("shorter", f"Shorter: {words(answers['first'])}", 20)
    return words(answers["shorter"])


# The roots


@server.tool
async def where(ctx: Context) -> str:
    """Tell where the user works."""
    roots = await ctx.list_roots()
    return ", ".join(str(root.uri) for root in roots) or "nowhere"


@server.tool
def where_by_hand(ctx: Context) -> InputRequired | str:
    """Tell where the user works."""
    listed = ctx.input_responses.get("roots")
    if not isinstance(listed, ListRootsResult):
        return InputRequired({"roots": ListRootsRequest()})
    return ", ".join(str(root.uri) for root in listed.roots) or "nowhere"


if __name__ == "__main__":
    server.run()
