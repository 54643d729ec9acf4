"""Sessions of 2025 that several processes share: what lies in the store, and what they tell each other.

Read in this order: `record` (what is remembered of a session, and how it changes), `store` (the port to the
rows), `messages` (what goes over the bus), `pace` (how often a client has others told), `shared` (sessions
and questions), `logs` (the events of streams).

Knows: rows, leases, messages. Refuses to know: HTTP, handlers, and what the protocol says.
"""
