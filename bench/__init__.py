"""The benchmark: ekiden against a bare ASGI ceiling, the official `mcp` server and FastMCP.

`python -m bench.run` measures and judges. Read `cells` for what is measured and which floors hold,
`measure` for how, `apps` for the servers themselves. Some sections are measured otherwise: `rounds`
for replay and calls of many rounds, `client` for the clients in `clients`, `tasks` for tasks.
"""
