"""The clients that are measured. Each runs in its own environment, as the servers in `apps` do."""
