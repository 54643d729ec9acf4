from typing import Any

from fastmcp.resources.base import ResourceResult
from mcp_types import ResourceTemplate as SdkTemplate
from pydantic import BaseModel

class ResourceTemplate(BaseModel):
    name: str
    uri_template: str
    parameters: dict[str, Any]
    title: str | None = None
    description: str | None = None
    mime_type: str = ...
    annotations: Any = None
    icons: Any = None
    meta: dict[str, Any] | None = None

    def to_mcp_template(self, **overrides: Any) -> SdkTemplate: ...
    async def _read(self, uri: str, params: dict[str, Any]) -> ResourceResult: ...
