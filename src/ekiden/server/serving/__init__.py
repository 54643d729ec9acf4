"""Serving: from a server to the transports, the event loop and the signals of a process.

Read in this order: `serving` (`Server.run`, `Server.asgi`), `http` (uvicorn, and its end in order), `loop`.

Knows: the endpoint and the transports. Refuses to know: handlers, rounds and tasks.
"""
