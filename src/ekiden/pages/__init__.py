"""What people see in a browser: questions to answer, and what happened to calls and tasks.

Needs `pip install ekiden[pages]`. Read in this order: `web` (requests, forms, templates, the headers that
keep a page safe), `look` (templates, the style sheet, the script), then the pages themselves, a folder each.

Knows: HTTP, HTML, the engine's public surface and the store's public contract.
Refuses to know: how a call is run.
"""
