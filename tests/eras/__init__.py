"""Clients of 2025 and of the draft, at the same endpoint as those of 2026."""
