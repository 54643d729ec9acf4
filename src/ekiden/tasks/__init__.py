"""Work that outlives its request: a row, its journal, and whoever runs it next.

Knows: the task's record, its legal moves, the port that stores implement, and the runner that claims
a task, replays its handler over the stored journal and lets go. Refuses to know: sockets, files,
tools and servers. The time and the ids come in as arguments.

Read in this order: `states` (the one table), `record` (the row), `moves` (what may be done to it),
`store` (the port), `leg` (a handler in a task), `runner` (who runs them), `view` (how a client sees it).
"""
