"""Carriers of a server's messages: Streamable HTTP as an ASGI application, stdio, and memory.

`port` is the port to the server. `http1` is an HTTP server for this one application; `legacy` is what
clients of 2025 need besides.
"""
