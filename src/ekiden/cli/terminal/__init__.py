"""What the user sees and types: results, progress, questions one at a time, forms field by field.

Knows: rich and questionary, and the answers that were given beforehand. Refuses to know: commands, and how
messages are carried.
"""
