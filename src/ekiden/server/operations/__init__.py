"""What operators want beside tools: rate limits, health, pages of their own, TLS.

Knows HTTP requests and middleware. Refuses to know calls, rounds and tasks.
"""
