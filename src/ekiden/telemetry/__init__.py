"""OpenTelemetry: a span and a duration for every request, if the process has a tracer at all.

Knows: the semantic conventions for MCP. Refuses to know: exporters, samplers, and how requests
are answered. Costs one dictionary lookup where nobody has set tracing up.
"""
