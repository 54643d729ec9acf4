"""The server: what authors register, how a request finds its handler, and what becomes of the result.

Knows: handlers, schemas, catalogs, subscriptions, middleware, the lifespan.
Refuses to know: HTTP, pipes, and how a message is encoded.
"""
