"""Tasks in the server: how a call becomes one, how its tool is run, and the `tasks/` methods.

Read in this order: `tasks` (the tasks of one server) with `quota`, `handler` (a tool in a task) with
`input_required`, `with_people` and `recorded`, `sources` (tasks of mounted servers too), `methods` (what
clients call) with `final`, `news` and `turns`, `waiting` (requests that wait for a task), `legacy` (the same
for clients of 2025-11-25 and of the draft).
"""
