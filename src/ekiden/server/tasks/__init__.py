"""Tasks in the server: how a call becomes one, how its tool is run, and the `tasks/` methods.

Read in this order: `tasks` (the tasks of one server), `handler` (a tool in a task) with `input_required`,
`methods` (what clients call), `waiting` (requests that wait for a task), `legacy` (the same for clients of
2025-11-25 and of the draft).
"""
