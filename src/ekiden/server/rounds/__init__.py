"""A call over its rounds: open the state, run the handler, seal the state of the next round.

Read in this order: `call` (one request with its handler), `rounds` (calls of 2026-07-28), `owning` (rounds
that run once), `parked` (handlers that stay alive), `by_hand` (handlers that return `InputRequired`),
`pushed` (calls of clients of 2025: their questions are pushed), `waiting_calls` and `pushed_waiting` (calls
that wait for people), `gated` and `telling` (what some calls pass besides).
"""
