"""Carriers of messages: Streamable HTTP (ASGI), stdio, and memory.

Know: bytes, connections, limits, back-pressure, and who is still there to listen.
Refuse to know: what a method does. All they see of the server is the `Endpoint` port.
"""
