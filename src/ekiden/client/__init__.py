"""The client: it speaks to every server, answers asks through callbacks, and drives rounds by itself.

Knows: eras, rounds, who answers what, caching. Refuses to know: sockets and pipes, and how
a server works inside.
"""
