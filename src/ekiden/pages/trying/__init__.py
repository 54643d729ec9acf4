"""The page Try: call what a server has, as the client that you choose, and answer what it asks.

Read in this order: `kinds` (which client to be), `questions` (what is asked, and the form for it), `run` (one
call from its start to its end), `catalog` (what the server has), `results` (what came back, as data for a
template), `status` (whether the server is served right now), `page`.

Knows: ekiden's own client, and the address of the server. Refuses to know: the server itself, which is called
over HTTP as any client calls it.
"""
