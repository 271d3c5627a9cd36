"""Capture sizes by a curve, for the terminal, made from their JSON form: both grids, then the line of a spec."""

from collections.abc import Mapping
from typing import Any

from servespec.render.alignment import aligned

Json = Mapping[str, Any]

_HEAD = ("grid", "graphs", "mean padding", "worst", "at")


def grid_text(document: Json) -> str:
    unit = "tokens" if document["kind"] == "prefill" else "requests"
    rows = [_row(f"by {document['curve']}", document["by_curve"], unit), _row("default", document["default"], unit)]
    sizes = ", ".join(map(str, document["by_curve"]["sizes"]))
    return f"{_heading(document)}\n{aligned([_HEAD, *rows])}\n\n{document['field']}: [{sizes}]\n"


def _heading(document: Json) -> str:
    drafts = "" if document["num_speculative_tokens"] is None else f", K = {document['num_speculative_tokens']}"
    cost = (
        "" if document["padded_row_cost"] == 1 else f", a padded row at {document['padded_row_cost']:g} of a real one"
    )
    return (
        f"{document['kind']} graphs{drafts}; epsilon {document['epsilon']:g}{cost}; shares of a step's time, predicted"
    )


def _row(name: str, grid: Json, unit: str) -> tuple[str, ...]:
    mean, worst = f"{grid['mean_padding']:.1%}", f"{grid['worst_padding']:.1%}"
    return name, str(len(grid["sizes"])), mean, worst, f"{grid['worst_at']} {unit}"
