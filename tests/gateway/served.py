"""The upstream server of the tests, for `ekiden run`."""

from .upstreams import shop

server = shop(store="memory:")
