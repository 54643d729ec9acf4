"""Questions to people: what is kept of one, what may happen to it, and what a store must do for it.

Read in this order: `record` (a question and the call that waits for it), `moves` (what may be done to a
question), `store` (the port that the stores implement).

Knows: rows and times. Refuses to know: pages, mails, handlers, and how a call goes on.
"""
