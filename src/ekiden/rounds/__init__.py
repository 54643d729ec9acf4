"""One logical request over many legs: a handler stops at an `await` and goes on anywhere.

Knows: effects, the journal that remembers them, how a leg ends, and what a token must say.
Refuses to know: sockets, files, clocks, randomness, JSON, keys, and which protocol version or
transport carried the request. Time and ids come in as arguments.

Read in this order: `outcome` (how a leg ends), `journal` (what is remembered), `asks` (what can be
asked), `turns` (who is told next), `running` (a leg from its beginning to its end), `performing` (how a
step is run), `leg` (the effects), `claims` (what a token says), `ledger` (what makes a repeat harmless).
"""
