"""Servers inside servers: one server offers what another has, under names with a prefix.

Read in this order: `names` (what a prefix does to names and URIs), `extensions` (which are offered around),
`mount` (one server inside another), `mounting` (the method of `Server`). Knows: endpoints. Refuses to know:
what is behind them.
"""
