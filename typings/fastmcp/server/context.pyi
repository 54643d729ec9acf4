from contextvars import Token
from typing import Literal

TransportType = Literal["stdio", "sse", "streamable-http"]

def set_transport(transport: TransportType) -> Token[TransportType | None]: ...
def reset_transport(token: Token[TransportType | None]) -> None: ...
