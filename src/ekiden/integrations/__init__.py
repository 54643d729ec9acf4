"""ekiden inside the servers of others: durable tools, prompts and resources beside the host's own.

- `ekiden.integrations.mcp.Durable` is for `MCPServer` of the official SDK.
- `ekiden.integrations.fastmcp.Durable` is for FastMCP.

Neither host is a dependency: each module imports its host when it is imported itself. Knows: `ekiden.engine`,
and the hosts. Refuses to know: anything deeper in ekiden.
"""
