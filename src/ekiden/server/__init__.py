"""The server: what authors register, how a request finds it, and what is made of its return value.

Knows: handlers, schemas, catalogs, subscriptions, middleware, the lifespan.
Refuses to know: HTTP, pipes, and how a message is spelled.
"""
