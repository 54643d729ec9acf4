"""The client: calls servers of every protocol version, answers what they ask, and makes all rounds of a call.

Read in this order: `client` (the public class) and `by_hand` (its rounds one by one), `calls` (one call over
its rounds), `connection` (one server, with `sessions` for each era and `target` for how to reach it),
`answering` (the callbacks), `checking` (whether an answer is one), `tasks`.

Knows: eras, rounds, who answers what, caching. Refuses to know: sockets and pipes, and how
a server works inside.
"""
