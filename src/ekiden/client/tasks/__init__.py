"""Tasks, from the client's side: `handle` for SEP-2663, `legacy` for those of 2025-11-25."""
