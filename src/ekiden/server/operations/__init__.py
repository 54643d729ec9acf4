"""What operators want beside tools: rate limits, health, pages of their own, TLS, records of calls.

Knows HTTP requests, middleware and stories. Refuses to know how calls, rounds and tasks are run.
"""
