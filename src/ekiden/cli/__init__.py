"""The command line: `ekiden` followed by one of these.

`run`, `dev`, `gateway` and `worker` serve, `ui` shows what happened to calls; `call`, `prompt`, `read`,
`tools`, `prompts`, `resources` and `tasks` talk to a server; `install` and `uninstall` write it into hosts,
`bundle` and `publish` give it to others; `store migrate`, `keys new` and `token` are for whoever operates
one.

Knows: terminals, processes, files of the user's. Refuses to know: how messages are spelled or carried.

Everything but the names and options of the commands is loaded when a command runs, so that `ekiden --help`
and shell completion stay fast. That is why modules of this folder import the server, the client and rich
inside functions, and name their types under `TYPE_CHECKING`: it hides no cycle, and the layers in
`pyproject.toml` count such imports like all others.
"""
