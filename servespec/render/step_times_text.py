"""Step times for the terminal, made from their JSON form: a line for each size and mode, with what a graph gains."""

from collections.abc import Iterator, Mapping
from typing import Any

from servespec.render.alignment import aligned

Json = Mapping[str, Any]

_MODES = {"FULL": "FULL", "PIECEWISE": "PIECEWISE", "NONE": "eager"}
_VERDICTS = {"pays": "pays", "does_not_pay": "does not pay", "undecided": "undecided", None: ""}
_HEAD = (
    "step", "run as", "padded", "ms", "spread", "target", "sampling", "drafter", "host", "eager / graph",
    "95 % interval", "verdict",
)  # fmt: skip


def step_times_text(document: Json) -> str:
    rows = [row for size in document["sizes"] for row in _rows(size)]
    parts = [_heading(document)] + ([aligned([_HEAD, *rows])] if rows else [])
    return "\n\n".join(parts) + "\n"


def _heading(document: Json) -> str:
    workers = document["workers"]
    return (
        f"step times on vLLM {document['engine']['version']}, {document['planned_device']}: {workers['complete']} of"
        f" {workers['expected']} workers came to the end, in {document['seconds']:.0f} s"
    )


def _rows(size: Json) -> Iterator[tuple[str, ...]]:
    if not size["modes"]:
        yield (_size(size), "not timed", *[""] * (len(_HEAD) - 2))
    for number, mode in enumerate(size["modes"]):
        yield (
            _size(size) if number == 0 else "",
            _MODES[mode["mode"]],
            str(mode["padded_tokens"]),
            _milliseconds(mode["median_seconds"]),
            _milliseconds(mode["spread_seconds"]),
            *(_milliseconds(mode["parts"][part]) if mode["parts"][part] else "-" for part in mode["parts"]),
            "-" if mode.get("host_seconds") is None else _milliseconds(mode["host_seconds"]),
            *_gain(mode["eager_over_graph"]),
            _VERDICTS[mode["verdict"]],
        )


def _size(size: Json) -> str:
    if size["kind"] == "decode":
        return f"decode {size['requests']} requests q={size['query_len']}"
    return f"mixed {size['tokens']} tokens"


def _gain(gain: Json | None) -> tuple[str, str]:
    if gain is None:
        return "", ""
    return f"{gain['ratio']:.3f}", f"{gain['low_95']:.3f} to {gain['high_95']:.3f}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"
