"""The benchmark: ekiden against a bare ASGI ceiling, the official `mcp` server and FastMCP.

`python -m bench.run` measures and judges. Read `cells` for what is measured and which floors hold,
`measure` for how, `apps` for the servers themselves.
"""
