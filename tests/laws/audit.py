"""A module with a `delete` of its own."""

from tests.laws.steps import noted


async def delete(number: int) -> str:
    noted.append(f"begin audit {number}")
    return f"audit deleted {number}"
