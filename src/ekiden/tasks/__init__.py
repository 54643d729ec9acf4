"""Work that outlives its request: a row and its journal, which any worker can go on with.

Knows: the task's record, its legal moves, the port that stores implement, and the runner that claims
a task, replays its handler over the stored journal and lets go. Refuses to know: sockets, files,
tools and servers. The time and the ids come in as arguments.

Read in this order: `states` (the one table), `record` (the row), `moves` (what may be done to it), `store`
(the port), `work` (what a task runs), `limits` and `observer`, `questions` and `leg` (a handler in a task),
`run` (one task while it is held), `queue` (which task is next), `leases`, `runner` (the worker), `view` (how
a client sees a task).
"""
