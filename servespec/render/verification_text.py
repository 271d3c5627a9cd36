"""A verification for the terminal, made from its JSON form: the verdict of each row, then what it adds up to."""

from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

_VERDICTS = (
    ("equal", "equal bit for bit"),
    ("differs", "differ"),
    ("not_deterministic", "differ where eager does not reproduce itself"),
    ("not_replayed", "not replayed"),
)


def verification_text(document: Json) -> str:
    return "\n".join([_heading(document), "", *_rows(document), "", *_sums(document)]) + "\n"


def _heading(document: Json) -> str:
    workers = document["workers"]
    return (
        f"replay against eager on vLLM {document['engine']['version']}: {workers['complete']} of {workers['expected']}"
        f" workers came to the end, in {document['seconds']:.0f} s"
    )


def _rows(document: Json) -> Iterator[str]:
    for row in document["rows"]:
        query_len = f" q={row['query_len']}" if row["query_len"] else ""
        counts = ", ".join(f"{row[key]} {words}" for key, words in _VERDICTS if row[key])
        yield f"  {row['runner'] + ' ' + row['routine'] + query_len:<32} {row['graphs']:>4} graphs: {counts}"
        yield from _worst(row)


def _worst(row: Json) -> Iterator[str]:
    """Of each output the shape where it differs most."""
    worst: dict[str, tuple[Json, Json]] = {}
    for shape in row["shapes"]:
        for one in shape["outputs"]:
            known = worst.get(one["output"])
            if known is None or one["largest_absolute"] > known[1]["largest_absolute"]:
                worst[one["output"]] = (shape, one)
    for name, (shape, one) in worst.items():
        where = f"{shape['tokens']} tokens" + (f", {shape['requests']} requests" if shape["requests"] else "")
        yield (
            f"    {name}: at most {one['largest_absolute']:.3g} apart (relative {one['largest_relative']:.3g}),"
            f" {one['differing']} of {one['values']} values, at {where}"
        )


def _sums(document: Json) -> Iterator[str]:
    accepted, speculation = document["acceptance"], document["speculation"]
    yield f"  accepted drafts: {accepted['graphs']} with graphs, {accepted['eager']} eagerly"
    if not speculation:
        return
    if not speculation["applies"]:
        yield f"  speculation on and off: not applicable, {speculation['because']}"
        return
    yield (
        f"  speculation on and off: {speculation['equal']} of {speculation['requests']} requests said the same tokens"
        " greedily"
    )
