"""The protocol as bytes: JSON, JSON-RPC, `_meta`, mirrored headers, SSE, and one dialect per version.

Knows: how every message of every protocol version is spelled, and which spelling is an error.
Refuses to know: what a message is for, who sent it, when, and over what. It opens no socket, reads
no clock, touches no file, and it is the only folder that parses or prints messages
of the protocol.
"""
