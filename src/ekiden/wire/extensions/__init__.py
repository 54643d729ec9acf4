"""What the protocol says of extensions (SEP-2133), and the extensions whose messages ekiden knows.

`names` has the rules for identifiers and the names that are taken; `skills` and `frontmatter` the shapes of
SEP-2640. Those of tasks are in `ekiden.wire.tasks`.
"""
