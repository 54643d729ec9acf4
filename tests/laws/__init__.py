"""The six laws of replay, each held to what ordinary code does."""
