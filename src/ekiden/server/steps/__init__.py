"""A step: its identity, made of a function and arguments, how it is run, and how its value is stored.

Read in this order: `step` (a function that is run once), `identity` (which step it is) with `spelling`,
`plain` and `scope`, `codecs` and `failures` (how a value or an exception is stored) with `likeness`,
`wording` (a step in a log message).
"""
