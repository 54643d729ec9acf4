"""The servers that are measured. Each runs in its contestant's own environment, so each imports
nothing but the standard library, its own SDK and its neighbours here.
"""
