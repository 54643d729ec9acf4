"""How a client talks to a server of each era, and how it finds out which one that is.

Read in this order: `session` (what both eras have in common), `modern` (2026-07-28), `legacy` (2025),
`starting` (which of them, of a process that may be slow to start), `eras` (which of them).
"""
