"""Tasks, as the server's clients see them: how a call becomes one, how its tool is run, and the `tasks/`
methods.
"""
