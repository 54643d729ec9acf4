"""Hours in minutes: many clients of both eras, while workers die, the database restarts and keys change.

`server` is what is served, `clients` call it and check every answer, `trouble` does harm meanwhile, `memory`
looks at the processes, `judging` adds up what must be zero, and `run` is the command.
"""
