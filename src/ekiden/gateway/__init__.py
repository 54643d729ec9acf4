"""Many servers behind one: upstream servers of any age, over HTTP or stdio, as one modern server.

    server = gateway("mcp.json")                      # the file that MCP hosts use
    shop.mount(proxy("https://billing.example/mcp"), prefix="billing")

Read in this order: `upstream` (where a server is, and what it is sent), `config` (out of a file), `turnstile`
(which call a question belongs to), `sessions` (of principals, with upstreams of 2025), `connector` (the
connection, lost and found again), `outgoing` (a request as it is sent on), `relay` (progress and log of a
call), `task_ids`, `forwarding` (calls), `entries` (what is listed), `watched`, `tasks`, `proxies` (one
upstream as a server), `front` (many).

Knows: servers and clients. Refuses to know: sockets, processes, and what passes through.
"""

from ekiden.gateway.config import read_config
from ekiden.gateway.front import gateway
from ekiden.gateway.proxies import Proxy, proxy
from ekiden.gateway.upstream import Upstream

__all__ = ["Proxy", "Upstream", "gateway", "proxy", "read_config"]
