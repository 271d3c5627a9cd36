"""The first line of a spec that servespec writes: where an editor finds the schema."""

SCHEMA_FILE = "spec.schema.json"
"""Beside the spec; `servespec schema spec > spec.schema.json` writes it."""

MODELINE = f"# yaml-language-server: $schema=./{SCHEMA_FILE}"
