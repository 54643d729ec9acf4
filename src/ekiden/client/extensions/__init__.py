"""Extensions of the protocol on the client's side: `Client(extensions=[...])`.

`extension` (what authors hold), `enabled` (the extensions of one client, tasks among them, and what they
add), `custom` (requests and notifications that only extensions have).
"""
