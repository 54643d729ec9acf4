"""What a person sees and types: the screen, questions one at a time, forms field by field, and results.

Knows: rich and questionary, and the answers that were given beforehand. Refuses to know: commands, and how
messages are carried.
"""
