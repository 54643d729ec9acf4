"""A call over its rounds: how the state is opened, the handler run, and what goes on sealed.

Read in this order: `call` (one request with its handler), `rounds` (calls of 2026-07-28), `once` (rounds that
run once) with `contenders`, `lease`, `enduring` and `kept_outcomes`, `parked` (handlers that stay alive),
`pushed` (calls of clients that are asked while they wait).
"""
