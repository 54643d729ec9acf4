"""Who may ask: the server as an OAuth 2.1 resource server (basic/authorization of 2026-07-28).

`auth` is what authors give to `Server(auth=...)`: it reads the credentials of every HTTP request, has a
verifier look at the token, and answers with challenges. The verifiers (`jwt`, `introspection`, `static`)
know tokens and nothing of HTTP requests. Knows nothing of tools: which of them needs which scopes is the
registry's business.
"""
