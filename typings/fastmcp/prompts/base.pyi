from typing import Any

from mcp_types import GetPromptResult, InputRequiredResult
from mcp_types import Prompt as SdkPrompt
from pydantic import BaseModel

class Message(BaseModel):
    def __init__(self, content: Any, role: str = "user") -> None: ...

class PromptArgument(BaseModel):
    def __init__(self, **fields: Any) -> None: ...

class PromptResult(BaseModel):
    messages: list[Message]
    description: str | None
    meta: dict[str, Any] | None

    def __init__(
        self,
        messages: str | list[Message],
        description: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None: ...
    def to_mcp_prompt_result(self) -> GetPromptResult: ...

class InputRequiredPromptResult(PromptResult):
    def __init__(self, input_required: InputRequiredResult) -> None: ...

class Prompt(BaseModel):
    name: str
    title: str | None = None
    description: str | None = None
    icons: Any = None
    meta: dict[str, Any] | None = None
    arguments: list[PromptArgument] | None = None

    def to_mcp_prompt(self, **overrides: Any) -> SdkPrompt: ...
    async def render(self, arguments: dict[str, Any] | None = None) -> Any: ...
