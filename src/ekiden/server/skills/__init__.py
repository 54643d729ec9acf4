"""Skills (SEP-2640): instructions for agents, in directories whose files are resources.

`skill` (one skill: its files and its entry), `folder` (skills that are read from a folder), `tree` (the
directories that they are in), `skills` (the extension). Hosts verify what they read, so a skill is read once
and served as it was then.
"""
