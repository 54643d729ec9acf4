"""How durable handlers get into hosts that are built on the official SDK.

The same for both: `durable` is what authors hold, `checks` what is refused when they register, `calls` how
one request of the host is answered by the engine, `boundary` what goes around the host's own protection of
`requestState`, `identity` whose request it is, `task_methods` and `listening` what belongs to tasks. Then
`mcpserver` for an `MCPServer`, and `fastmcp_host` with its `components` for FastMCP.

Private parts of a host are used in one file each: `official_parts` and `fastmcp_parts`.
"""
