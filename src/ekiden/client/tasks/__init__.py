"""Handles for tasks of a server: `handle` for SEP-2663, `legacy` for 2025-11-25, `draft` for 2026-06-XX."""
