"""`ekiden bundle` and `ekiden publish`: a server as a file for hosts, and as an entry of the registry.

Knows: the manifest of MCPB, `server.json` of the MCP Registry, what `pyproject.toml` says of a project.
Refuses to know: accounts. Nothing is sent anywhere.
"""
