"""`ekiden ui`: the pages Calls and Tasks of a store, for an operator.

Read in this order: `ui` (the site, who may see what, and how it is served), `command` (its options).
"""
