"""Extensions that authors write (SEP-2133, SEP-3371): `Server(extensions=[...])`.

`extension` (what authors hold), `methods` (how a method of it is called), `results` (results of other types),
`lifespans` (what extensions acquire and release, and what they need of the server), `hearing` (notifications
of clients). What a server keeps of an extension is in `registration/extensions`.
"""
