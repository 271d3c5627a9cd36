"""Whether the tokenizer of a model with dummy weights has text for the ids that it answers with."""

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from servespec.compiler.resolve.request import engine_field
from servespec.diagnostics import Diagnostic, Place
from servespec.runtime.bench.arms import Arm
from servespec.runtime.bench.bench_rules import TOKENIZER_KNOWS_FEW

_LEAST_SHARE: Final = 0.5
"""Chosen: published models pad their vocabulary by a few percent, and tokenizers that are made up know bytes alone."""


def tokenizer_findings(arms: Iterable[Arm]) -> Iterator[Diagnostic]:
    """Of each tokenizer once.  One that is on the hub, or that the spec names apart, is not looked at."""
    random = dict.fromkeys((arm.tokenizer, _vocabulary(arm)) for arm in arms if _answers_at_random(arm))
    for folder, size in random:
        known = known_ids(Path(folder) / "tokenizer.json")
        if known is None or size is None:
            continue
        answered = sum(one < size for one in known)
        if answered < _LEAST_SHARE * size:
            yield _finding(Path(folder), answered, size)


def _answers_at_random(arm: Arm) -> bool:
    spec = arm.plan.resolution.request.spec
    return spec.model.load_format == "dummy" and engine_field(spec, "model", "tokenizer", None) is None


def _vocabulary(arm: Arm) -> int | None:
    return arm.plan.resolution.request.target.traits.vocab_size


def known_ids(path: Path) -> frozenset[int] | None:
    """The ids that have text; None where the file is not there, or is not of this form, which the engine will tell."""
    try:
        document = json.loads(path.read_bytes())
        return frozenset(map(int, _ids(document)))
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None


def _ids(document: Any) -> Iterator[int]:
    """Source: tokenizers: a vocabulary is a map of words to ids, or for Unigram a list in their order."""
    vocabulary = document["model"]["vocab"]
    yield from range(len(vocabulary)) if isinstance(vocabulary, list) else vocabulary.values()
    yield from (added["id"] for added in document.get("added_tokens", ()))


def _finding(folder: Path, known: int, size: int) -> Diagnostic:
    message = (
        f"the weights of `{folder.name}` are dummies, so that it answers with any of {size} ids, and its tokenizer has "
        f"text for {known}: the API server will bound long answers"
    )
    program = f"python benchmarks/dummy_tokenizer.py {shlex.quote(str(folder))}"
    help_text = f"run `{program}`, or put a real model's tokenizer there"
    return TOKENIZER_KNOWS_FEW.at(Place(str(folder / "tokenizer.json")), message, help_text)
