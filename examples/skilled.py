"""A server with skills and a card, and a client that loads a skill."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from ekiden import Client, Server, ServerCard
from ekiden.extensions import Skills

skills = Skills(Path(__file__).parent / "skills", prefix="shop")

skills.add(
    "shop/greeting",
    description="How to greet a customer.",
    instructions="Say the name, then ask what you can do. Examples are in `phrases.txt`.",
    files={"phrases.txt": "Good morning, Aiko. What can I do for you?\n"},
)


@skills.generate("shop/today", description="What is on offer today.")
async def today() -> str:
    """Made anew whenever it is read."""
    return f"Today, {datetime.now(UTC):%A}, tea is half the price."


card = ServerCard(
    name="com.example/shop",
    description="Refunds and offers of a shop",
    url="https://shop.example.com/mcp",
)

server = Server("shop", version="1.0.0", extensions=[skills], card=card)


async def main() -> None:
    """See what there is, and load one skill."""
    async with Client(server) as client:
        for skill in await client.list_skills():
            print(skill.uri, "-", skill.description)
        loaded = await client.load_skill("skill://shop/refunds/SKILL.md")
        print(loaded.files)
        print((await loaded.read("examples/email.md")).decode())


if __name__ == "__main__":
    asyncio.run(main())
