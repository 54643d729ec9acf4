"""What happened to calls, as records that processes share: for the pages that show it.

In this order, each knows only those before it: `events` has the records, `store` is the port to where they
are kept, `recorder` writes them in batches, `telling` is what a server tells of one leg, `log_lines` adds
what was logged meanwhile.

Knows: legs, journals and outcomes, as they are told of. Refuses to know: who answers requests, and how a
story is shown.
"""
