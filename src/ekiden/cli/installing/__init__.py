"""`ekiden install` and `ekiden uninstall`: a server in the configuration of a host.

Knows: which hosts there are, where their files lie, how they name the parts of an entry, and how a server is
started. `json_text` and `yaml_text` change one entry of a text and leave every other letter as it is.
Refuses to know: what a server does. It is started once to see that it answers, and no more.
"""
