"""Attacks on pages, on what they show, and on what is served beside the endpoint."""
