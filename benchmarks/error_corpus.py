"""Tells the corpus of broken specs to servespec, and the same slips to `vllm serve --config`, and counts what is said.

usage: python benchmarks/error_corpus.py --out FILE

Of the engine it is the reading of its arguments, by its own parser, before it looks at a model; a slip in what only
servespec has is told to servespec alone.  It needs the engine's source (tools/fetch_engines.py) and torch.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from servespec.diagnostics import Severity, SpecError  # noqa: E402
from servespec.runtime.machine import made_on  # noqa: E402
from servespec.runtime.spec_file import spec_diagnostics  # noqa: E402
from servespec.schema.source import read_source  # noqa: E402
from tests.differential.engine_oracle import engine_root  # noqa: E402
from tests.differential.engine_process import run  # noqa: E402
from tests.errors.corpus import GOOD, Broken, Fault, corpus  # noqa: E402

ENGINE = "0.33.0"
_OWN_SECTIONS = ("hardware", "remedies", "engine", "lora")
_CONFIGS = {"speculative": "speculative-config", "compilation": "compilation-config"}
_NEW_FIELD = re.compile(r"(fill|decode)_cudagraph_capture|max_cudagraph_memory|ready_timeout_seconds|dynamic|up_to|GiB")
_NAMES = {"id": "model", "backend": "attention-backend"}


@dataclass(frozen=True, slots=True)
class Told:
    """Of one broken file: whether it was refused, and how many of its faults were named, placed and put right."""

    refused: bool
    named: int
    placed: int
    corrected: int


def told_by_servespec(broken: Broken) -> Told:
    try:
        found = spec_diagnostics(read_source(broken.text.encode(), "spec.yaml"), allow_code=False)
    except SpecError as error:
        found = error.diagnostics
    errors = [one for one in found if one.severity is Severity.ERROR]
    places = [place for one in errors for place in (one.place, *(related.place for related in one.related))]
    starts = {(place.range.start.line, place.range.start.column) for place in places if place.range}
    said = "\n".join(f"{one.message} {one.help}" for one in errors)
    return Told(
        refused=bool(errors),
        named=sum(fault.words[0] in said for fault in broken.faults),
        placed=sum((fault.line, fault.column) in starts for fault in broken.faults),
        corrected=sum(bool(fault.first) and f"`{fault.first}`" in said for fault in broken.faults),
    )


def told_by_engine(broken: Broken, refusal: str | None) -> Told:
    """Lines are those of the file that the engine was given, which has one for each line that it can take."""
    said = refusal or ""
    return Told(
        refused=refusal is not None,
        named=sum(_is_named(fault.words[0], said) for fault in broken.faults),
        placed=sum(re.search(rf"line {_engine_line(broken, fault)}\b", said) is not None for fault in broken.faults),
        corrected=sum(bool(fault.first) and _is_named(fault.first, said) for fault in broken.faults),
    )


def _is_named(name: str, said: str) -> bool:
    return bool(said) and (name in said or name.replace("_", "-") in said)


def _engine_line(broken: Broken, fault: Fault) -> int:
    written = [row for row, _ in _engine_lines(broken.text)]
    return written.index(fault.line - 1) + 1 if fault.line - 1 in written else 0


def engine_file(broken: Broken) -> str | None:
    """The same slip in the engine's own file; None where it is in what the engine does not have."""
    lines = dict(_engine_lines(broken.text))
    if any(fault.line - 1 not in lines for fault in broken.faults):
        return None
    return "\n".join(lines.values()) + "\n"


def _engine_lines(text: str) -> Iterator[tuple[int, str]]:
    """Sections that the engine takes as flags are written at the top, its configs as mappings."""
    section = ""
    for row, line in enumerate(text.splitlines()):
        name = line.strip().partition(":")[0]
        if not line.startswith(" "):
            section = name
            if name in _CONFIGS and _has_fields(text, row):
                yield row, f"{_CONFIGS[name]}:"
            continue
        if section in _OWN_SECTIONS or _NEW_FIELD.search(line) or line.startswith("    "):
            continue
        if section in _CONFIGS:
            yield row, line
        else:
            yield row, f"{_NAMES.get(name, name)}:{line.strip().removeprefix(f'{name}:')}"


def _has_fields(text: str, row: int) -> bool:
    below = text.splitlines()[row + 1 :]
    own = below[: next((at for at, line in enumerate(below) if not line.startswith(" ")), len(below))]
    return any(not _NEW_FIELD.search(line) for line in own)


_COMPARED = ("typos", "wrong_types", "pairs")
"""Kinds of slips that a file of the engine can have as well."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    everything = corpus()
    files = {one.name: engine_file(one) for one in everything if one.kind in _COMPARED}
    both = [one for one in everything if files.get(one.name) is not None]
    good = [engine_file(Broken(name, "", text, ())) or "" for name, text in GOOD.items()]
    refusals = _refusals([*good, *(files[one.name] or "" for one in both)])
    assert not any(refusals[: len(good)]), refusals[: len(good)]
    refusals = refusals[len(good) :]
    document = {
        "what": "broken specs told to servespec, and the same slips to `vllm serve --config` of that version",
        "engine": f"vllm {ENGINE}",
        **made_on(["python", *sys.argv]),
        "servespec": _sums(everything, [told_by_servespec(one) for one in everything]),
        "both": {
            "servespec": _sums(both, [told_by_servespec(one) for one in both]),
            "engine": _sums(both, [told_by_engine(one, said) for one, said in zip(both, refusals, strict=True)]),
        },
    }
    arguments.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps({key: document[key] for key in ("servespec", "both")}, indent=1))
    return 0


def _refusals(texts: list[str]) -> list[str | None]:
    """What the engine's parser says of each file; None of one that it takes."""
    words = ["--config", "engine.yaml"]
    requests = [{"words": words, "entry": "serve", "files": {"engine.yaml": text}} for text in texts]
    answers = run("real_command_line.py", engine_root(ENGINE), json.dumps(requests))["answers"]
    return [answer.get("refusal") for answer in answers]


def _sums(broken: list[Broken] | tuple[Broken, ...], told: list[Told]) -> Mapping[str, Any]:
    faults = sum(len(one.faults) for one in broken)
    correctable = sum(bool(fault.first) for one in broken for fault in one.faults)
    return {
        "files": len(broken),
        "kinds": dict(Counter(one.kind for one in broken)),
        "faults": faults,
        "refused_files": sum(one.refused for one in told),
        "named_faults": sum(one.named for one in told),
        "placed_faults": sum(one.placed for one in told),
        "misspelled_faults": correctable,
        "right_name_said": sum(one.corrected for one in told),
    }


if __name__ == "__main__":
    raise SystemExit(main())
