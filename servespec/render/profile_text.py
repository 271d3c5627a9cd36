"""A curve for the terminal, made from the document of step times: a row for each batch, a column for each K."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from servespec.render.alignment import aligned

Json = Mapping[str, Any]

_GRAPHS = {"FULL": "", "PIECEWISE": " p", "NONE": " e"}


def profile_text(document: Json) -> str:
    """Milliseconds of whole steps; those without a FULL graph are marked, and those that wait for the host."""
    sizes = [size for size in document["sizes"] if size["modes"]]
    decodes = [size for size in sizes if size["kind"] == "decode"]
    mixed = [size for size in sizes if size["kind"] == "mixed"]
    parts = [_heading(document)]
    if decodes:
        parts.append(aligned(list(decode_rows(decodes))))
    if mixed:
        parts.append(aligned([("tokens", "ms"), *((str(size["tokens"]), _cell(size)) for size in mixed)]))
    return "\n\n".join(parts) + "\n"


def _heading(document: Json) -> str:
    return (
        f"milliseconds of a step on vLLM {document['engine']['version']}, {document['planned_device']}; "
        f"p: on PIECEWISE graphs, e: eager, h: waits for the host; {document['seconds']:.0f} s"
    )


def decode_rows(decodes: Sequence[Json]) -> Iterator[tuple[str, ...]]:
    """A header, then a row for each batch: milliseconds with each K, marked as in the heading."""
    by_shape = {(size["requests"], size["next_drafts"]): size for size in decodes}
    drafts = sorted({k for _, k in by_shape})
    yield ("requests", *(f"K={k}" for k in drafts))
    for requests in sorted({requests for requests, _ in by_shape}):
        cells = (by_shape.get((requests, k)) for k in drafts)
        yield (str(requests), *("-" if size is None else _cell(size) for size in cells))


def _cell(size: Json) -> str:
    served = size["modes"][0]
    host = " h" if served.get("host_seconds") is not None and served["host_seconds"] >= served["median_seconds"] else ""
    return f"{served['median_seconds'] * 1000:.3f}{_GRAPHS[served['mode']]}{host}"
