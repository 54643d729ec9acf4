"""One logical request over its legs, and how a leg ends.

Knows: outcomes. Refuses to know: sockets, clocks, files, JSON, and which protocol version or
transport carried the request.
"""
