"""The commands that call a server and may be asked something: `call`, `prompt`, `read`, `tasks TARGET`.

Knows: clients, and the terminal where the user answers. Refuses to know: how messages are spelled or carried,
and what lies in a store.
"""
