"""What a server offers: how authors register it, what it is called with, and what its results mean.

Read in this order: `signatures` (what a function says about itself), `tools`, `prompts`, `resources`,
`templates` and `completions` (what can be registered), `catalog` and `registry` (where it is kept), `results`
(what a handler's value or exception means), `options` (what a decorator takes), `decorators` (what authors
call).
"""
