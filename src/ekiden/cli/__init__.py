"""The command line: `ekiden run | call | tools | prompts | resources | keys | token`.

Knows: terminals, processes, files of the user's. Refuses to know: how messages are spelled or carried.
Everything but the names and options of the commands is loaded when a command runs, so that
`ekiden --help` and shell completion stay fast.
"""
