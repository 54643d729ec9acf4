"""Servers that are hostile at random, and the law for our client.

All is drawn from a seed, so that what is found can be played again. `values` makes what they say, `server`
says it over HTTP, `stdio` over stdin and stdout, `play` lets our client call them and holds it to the law,
`run` plays many seeds.
"""
