"""Questions that people answer on a page, as the server asks and minds them.

Read in this order: `port` (what `Server(pages=...)` must have), `words` (what a client is told meanwhile),
`people` (questions are put, looked at, answered), `minding` (reminders, deadlines, tasks that must be told).

Knows: questions, links, the store's contract. Refuses to know: HTML, mails, and how a handler is run.
"""
