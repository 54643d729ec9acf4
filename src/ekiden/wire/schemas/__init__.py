"""JSON Schemas: validators, and what they may cost where the schema is a stranger's."""
