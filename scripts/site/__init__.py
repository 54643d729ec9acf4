"""The site: the pages in `docs`, the reference that is read from the code, and a search, as static files.

`python -m scripts.site` assembles the pages in `.cache/site/pages` and builds them with Zensical (decision
0036). Nothing in the result is loaded from another host.
"""
