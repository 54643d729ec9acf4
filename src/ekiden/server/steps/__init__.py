"""A step: which function with which arguments it is, how it is run, and how its value is kept.

Read in this order: `step` (a function that is run once), `identity` (which step it is) with `spelling`,
`plain` and `scope`, `codecs` and `failures` (how a value or an exception is kept) with `likeness`,
`wording` (a step in words).
"""
