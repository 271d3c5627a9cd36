"""Rows of words as columns, and their cells."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Each row on a line of its own, two spaces in and two between columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def or_nothing(value: object) -> str:
    """A cell for what may be null."""
    return "" if value is None else str(value)
