"""Skills of a server (SEP-2640), as a host uses them: listed, loaded, and verified file by file.

`reading` (the methods of a client), `loaded` (a skill that a host acts on).
"""
