"""docs/reference/memory.md: what launches held beside what the memory ledger says of them."""

from collections.abc import Iterator

import memory_table as measured

from doc_pages.markdown import page, sentences, table


def memory_page() -> str:
    rows = tuple(measured.rows())
    return page(
        "Memory, measured and predicted",
        sentences(
            "Made by `tools/memory_table.py` from the files that are named below. "
            "Predictions are of the spec, the config.json of the models and the device table alone. "
            "A bound is what a test holds the row to. "
            "Rows that are not within it stay here, with the reason as far as it is known. "
            "A fitted row is one that a constant of the ledger was chosen by, so that it says nothing of others. "
            "Many figures of graphs shaped the formulas of graphs, so they are no independent score of them."
        ),
        sentences(
            f"The median error is {measured.median_error(rows):.1%}, over all rows that nothing was fitted on and that "
            "are no estimate of the engine's."
        ),
        *(part for file in measured.FILES for part in _file(file, rows)),
        "## Savings of remedies",
        sentences("On an earlier grid without a limit of decode tokens, one remedy after the other."),
        table(
            ("launch", "remedies", "measured GiB", "predicted GiB", "error"),
            [_saving(saving) for saving in measured.savings()],
        ),
    )


def _file(file: str, rows: tuple[measured.Row, ...]) -> Iterator[str]:
    document = measured.document(file)
    yield f"## {file.removesuffix('.json')}"
    yield sentences(f"{document['what']}. {document['note']} File: [{file}](../measurements/{file}).")
    yield table(
        ("launch", "figure", "measured", "predicted", "error", "bound", "verdict"),
        [_row(row) for row in rows if row.file == file],
    )


def _row(row: measured.Row) -> tuple[str, ...]:
    return (
        row.launch,
        row.figure.name,
        _value(row.figure.value, row.figure.unit),
        "not known" if row.predicted is None else _value(row.predicted, row.figure.unit),
        "" if row.error is None else f"{row.error:+.1%}",
        f"{row.bound:.0%}",
        _verdict(row),
    )


def _value(value: float, unit: str) -> str:
    return f"{value:,.3f} GiB" if unit == "GiB" else f"{value:,.0f} {unit}"


def _verdict(row: measured.Row) -> str:
    if row.is_within:
        return "fitted" if row.figure.is_fitted else "within"
    because = measured.MISSED.get((row.launch, row.figure.name), "not explained")
    return f"missed: {because}"


def _saving(saving: measured.Saving) -> tuple[str, ...]:
    value = measured.saved(saving)
    return (
        saving.launch.name,
        ", ".join(sorted(saving.added)),
        f"{saving.measured_gib:.2f}",
        f"{value:.2f}",
        f"{value / saving.measured_gib - 1:+.0%}",
    )
