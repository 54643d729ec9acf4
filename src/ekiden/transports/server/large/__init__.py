"""Large results, and the calls that make them: who waits, in which order, and what is not sent.

`sizes` says what a value takes in memory, `begins` lets handlers begin a few at a time, `held` counts what
waits, `results` has turns for the results of requests, `outbox` for the answers on one pipe. Nothing here
knows a protocol.
"""
