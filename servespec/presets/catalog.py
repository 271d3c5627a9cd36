"""The presets that come with the package, and the facts about models that they are planned with.

A preset is a spec like any other; its file is named ``MODEL__HARDWARE__GOAL.yaml``, and its first comment says what
it is for and where it was measured or that it was not.  Files are read when they are asked for, so that a command
that needs none reads none.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

_SPEC_ENDING = ".yaml"
_HARDWARE = re.compile(r"(?P<gpu>.*?)(?:x(?P<count>[1-9]\d{0,4}))?", re.DOTALL)
_MODEL_ID = re.compile(r"^(?:model: \{|  )id: (?P<id>[\w./-]+)", re.MULTILINE)
_BASIS = re.compile(r"basis: (?P<basis>measured|modelled|example): (?P<evidence>.+)")
_OTHERS = "docs/measurements/published-"
_COST_OPENING = "# What it costs and gives"
_COST_CLOSING = "# End of what the plan says"


class PresetBasis(StrEnum):
    """What stands behind a preset.

    MEASURED: servers of this model on this hardware were measured; the evidence says by whom, and on what.
    MODELLED: nobody measured it here, and every line of its plan's memory is known.
    EXAMPLE: it shows how something is written; parts of its plan's memory are not known.
    """

    MEASURED = "measured"
    MODELLED = "modelled"
    EXAMPLE = "example"


class PresetGoal(StrEnum):
    """What a preset is for, the last part of its name."""

    BALANCED = "balanced"
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    VARIABLE_LOAD = "variable-load"
    LONG_CONTEXT = "long-context"
    PREFILL_ONLY = "prefill-only"
    FIRST_STEPS = "first-steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A preset by its name and first comment.

    ``model`` is the name's first part and ``model_id`` the model's name on the hub; ``text`` is the whole file.
    """

    name: str
    model: str
    model_id: str
    gpu: str
    count: int
    goal: PresetGoal
    summary: str
    basis: PresetBasis
    evidence: str
    text: str

    @property
    def measured_by(self) -> str | None:
        """`us` or `others`, by the files that the evidence names; None where nobody measured."""
        if self.basis is not PresetBasis.MEASURED:
            return None
        return "others" if _OTHERS in self.evidence else "us"

    def to_json(self) -> dict[str, Any]:
        """One entry of `presets list --format json`."""
        return {
            "name": self.name,
            "model": self.model_id,
            "gpu": self.gpu,
            "count": self.count,
            "goal": self.goal.value,
            "basis": self.basis.value,
            "measured_by": self.measured_by,
            "summary": self.summary,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Public facts of a model: the part of its `config.json` that a plan reads.

    ``raw`` is that part as it is shipped, ``source`` says where it is from, and ``unknown`` what is not public or was
    not compared with the checkpoint.
    """

    model: str
    raw: bytes
    source: str
    unknown: tuple[str, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        data: dict[str, Any] = json.loads(self.raw)
        return data


def preset_names() -> tuple[str, ...]:
    """Every preset's name, in alphabetical order."""
    files = (one.name for one in _folder().iterdir())
    return tuple(sorted(name.removesuffix(_SPEC_ENDING) for name in files if name.endswith(_SPEC_ENDING)))


def presets() -> Iterator[Preset]:
    """Every preset, in the order of the names."""
    return map(preset_of, preset_names())


def preset_bytes(name: str) -> bytes | None:
    """The file of a preset; None where there is no such preset."""
    if name not in preset_names():
        return None
    return _folder().joinpath(f"{name}{_SPEC_ENDING}").read_bytes()


def preset_of(name: str) -> Preset:
    """The preset of a name that :func:`preset_names` has."""
    raw = preset_bytes(name)
    assert raw is not None, name
    text = raw.decode("utf-8")
    model, hardware, goal = name.split("__")
    gpu, count = machine_of(hardware)
    named = _MODEL_ID.search(text)
    assert named is not None, name
    summary, basis = _first_comment(text)
    stated = _BASIS.fullmatch(basis)
    assert stated is not None, name
    return Preset(
        name=name,
        model=model,
        model_id=named["id"],
        gpu=gpu,
        count=count,
        goal=PresetGoal(goal),
        summary=summary,
        basis=PresetBasis(stated["basis"]),
        evidence=stated["evidence"],
        text=text,
    )


def machine_of(hardware: str) -> tuple[str, int]:
    """Device and count of a name such as `gb200x4`; the count is 1 where none is named."""
    name, count = named_machine(hardware)
    return name, count or 1


def named_machine(hardware: str) -> tuple[str, int | None]:
    """The same, with None where no count is named."""
    found = _HARDWARE.fullmatch(hardware)
    assert found is not None, "any text is a device's name"
    return found["gpu"], int(found["count"]) if found["count"] else None


def _first_comment(text: str) -> tuple[str, str]:
    """The two paragraphs after the modeline, each on one line: what the preset is for, and its basis."""
    _, *lines = text.splitlines()
    comment = "\n".join(_while_comment(lines))
    summary, _, basis = comment.partition("\n\n")
    return " ".join(summary.split()), " ".join(basis.split())


def _while_comment(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("#"):
            return
        yield line.removeprefix("#").strip()


def without_cost(text: str) -> str:
    """A preset's text without the block that says what its plan costs and gives."""
    before, opened, _ = text.partition(_COST_OPENING)
    return f"{before.rstrip()}\n" if opened else text


def with_cost(text: str, engine: str, lines: list[str]) -> str:
    """A preset's text with that block made anew, from what the plan for ``engine`` prints."""
    opening = f"{_COST_OPENING}, as planned for {engine}; written by tools/gen_docs.py, estimates where it says so:"
    block = [opening, *(f"#   {line}".rstrip() for line in lines), _COST_CLOSING]
    return without_cost(text) + "\n" + "\n".join(block) + "\n"


def model_facts(model: str) -> ModelFacts | None:
    """The shipped facts of a model by its name on the hub; None where there are none."""
    name = model.replace("/", "--")
    folder = _models()
    if name not in {one.name for one in folder.iterdir()}:
        return None
    found = _facts_in(folder.joinpath(name))
    return found if found.model == model else None


def every_model() -> Iterator[ModelFacts]:
    """The shipped facts of every model, by name."""
    return map(_facts_in, sorted(_models().iterdir(), key=lambda folder: folder.name.lower()))


def _facts_in(folder: Traversable) -> ModelFacts:
    told = json.loads(folder.joinpath("source.json").read_bytes())
    return ModelFacts(
        told["model"], folder.joinpath("config.json").read_bytes(), told["source"], tuple(told["unknown"])
    )


def _folder() -> Traversable:
    return resources.files("servespec.presets")


def _models() -> Traversable:
    return _folder().joinpath("models")
