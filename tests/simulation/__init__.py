"""Deterministic simulation: generated handlers in a faulty world, held to the laws of the engine.

Read `programs` (what is run), `world` (where it is run), `oracle` (what must hold), in this order.
"""
