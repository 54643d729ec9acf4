"""What clients of 2025 need of a transport: sessions, streams that outlive their connections, and workers
that pass requests on to each other. `port` is the port to the sessions.
"""
