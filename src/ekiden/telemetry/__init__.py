"""OpenTelemetry: spans if the process has set up a tracer, metrics if it has set up a meter.

Knows: the semantic conventions for MCP. Refuses to know: exporters, samplers, and how requests
are answered. Without either it costs one dictionary lookup.

`context` is what travels between processes, `conventions` has the names. The spans themselves: of a server in
`spans`, of its tasks in `legs`, of a client in `calls`. `metrics` has every metric; `rounds` and `tasks`
report to them, and `prometheus` serves them.
"""
