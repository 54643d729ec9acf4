"""One logical request over many legs: a handler stops at an `await` and goes on anywhere.

Knows: effects, the journal that remembers them, how a leg ends, and what a token must say.
Refuses to know: sockets, files, clocks, randomness, JSON, keys, and which protocol version or
transport carried the request. Time and ids come in as arguments.

Read in this order: `outcome` (how a leg ends), `journal` (what is remembered), `asks` (what can be
asked, and where answers come from), `handler_task` (how a handler begins and ends), `turns` (in which order
effects give it their values), `accounting` (what must come up before a new step), `waiting` (what becomes of
an effect that is cancelled), `interpreter` (what an effect is to
whoever performs it), `performing` (how a step is run), `replay` (one run as a whole), `leg` (the
effects), `pushing` (the effects without a replay), `call_state` (what a token says), `ledger` (what makes a
repeat harmless).
"""
