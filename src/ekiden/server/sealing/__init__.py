"""What is sealed with the server's keys.

Read in this order: `key_source`, `keys` and `nonces`, `tokens` (the `requestState`: sealed, opened, and
checked) with `room` (what its spilled parts take of a store) and `refused_states`, `seal` (a value in a
store), `sealed_tasks`, `sealed_sessions`, `sealed_people`, `sealed_stories` and `store` (a store whose
contents are sealed).
"""
