"""Carriers of a client's messages: Streamable HTTP, stdio to a process, and a channel within this one.

`link` is the port to the client, `http_port` the one to whatever speaks HTTP.
"""
