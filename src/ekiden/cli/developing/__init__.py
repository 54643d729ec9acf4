"""`ekiden dev`: a server with reload, and a page to try it beside it.

Read in this order: `page` (the site on its own port), `inspector` (the official one, if it is wanted), `dev`
(all of it together), `command` (its options).
"""
