"""Servers of others, served by ekiden as they are: `ekiden run their_server.py`.

`carry` makes an ekiden server out of a FastMCP or an `MCPServer`, and says what could not come along. Their
handlers run in the code of their own SDK, with its own `Context`: `calls` is what that context talks to in
place of a client. `official` is for an `MCPServer`, `fastmcp_server` for a FastMCP.

Private parts of a host are used in `ekiden.integrations.inside.official_parts` and `fastmcp_parts`.
"""

from ekiden.integrations.carried.carry import CarriedServer, carry, is_foreign

__all__ = ["CarriedServer", "carry", "is_foreign"]
