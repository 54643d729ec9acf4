"""How the processes of one server tell each other what has happened.

`port` says what a bus is; `sockets` is the one between processes of one machine, which `ekiden run --workers`
and stores in SQLite use. Stores in Postgres have their own. Read in this order: `port`, `listeners`,
`private_folder`, `datagrams`, `sockets`.

Knows: messages of some hundred bytes, and who listens. Refuses to know: what the messages mean.
"""
