"""OpenTelemetry: a span and a duration for every request, if the process has set up a tracer.

Knows: the semantic conventions for MCP. Refuses to know: exporters, samplers, and how requests
are answered. Without a tracer it costs one dictionary lookup.
"""
