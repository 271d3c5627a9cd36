"""An arm is one way to serve: the spec under another lowering, the stock engine, or another spec."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from servespec.compiler.lower import Lowering
from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Place, SpecError
from servespec.provenance import PRESET_PREFIX
from servespec.runtime.bench.bench_rules import DESIGN_REFUSED
from servespec.runtime.gather import Options, compile_request
from servespec.runtime.spec_file import base_folder, read_spec
from servespec.schema.capture_fields import NEW_FIELDS
from servespec.schema.source import SpecSource

STOCK: Final = "stock"
"""The engine without our fields: what it captures by itself for the same model, limits and drafts."""
SPEC: Final = "spec"
"""The spec as it is written."""
NAMED_ARMS: Final = (STOCK, SPEC, *(str(lowering) for lowering in Lowering if lowering is not Lowering.NONE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What is served under ``label``: a spec file with the settings laid over it, and its plan."""

    label: str
    spec: str
    settings: tuple[str, ...]
    plan: Plan

    @property
    def served_name(self) -> str:
        """The server's name for the model."""
        model = self.plan.resolution.request.spec.model
        return model.served_model_name or model.id

    @property
    def tokenizer(self) -> str:
        """The model's folder, or its name on the hub."""
        request = self.plan.resolution.request
        folder = base_folder(request.source) / request.spec.model.id
        return str(folder) if folder.is_dir() else request.spec.model.id

    def to_json(self) -> dict[str, Any]:
        """What the arm is served from, and of the plan what it captures."""
        plan, source = self.plan.to_json(), self.plan.resolution.request.source
        rows = ("runner", "routine", "mode", "query_len", "num_speculative_tokens", "count", "graphs", "sizes")
        return {
            "spec": Path(self.spec).name,
            "texts": {Path(name).name: text for name, text in source.texts.items()},
            "lowering": str(self.plan.lowered.lowering),
            "remedies": plan.get("remedies", []),
            "graphs": len(self.plan.graphs.shapes),
            "runners": [{name: row[name] for name in rows if name in row} for row in plan["runners"]],
        }


def arm_of(name: str, label: str, spec: str, options: Options, further: tuple[str, ...] = ()) -> Arm:
    """The arm called ``name``: one of :data:`NAMED_ARMS`, or the path of another spec.

    ``further`` settings hold for every arm.  Raises SpecError where its spec is refused.
    """
    if name not in NAMED_ARMS and not (name.startswith(PRESET_PREFIX) or Path(name).is_file()):
        message = f"there is no arm `{name}`"
        raise SpecError(
            [DESIGN_REFUSED.at(Place("--arms"), message, f"name one of {', '.join(NAMED_ARMS)}, or a spec")]
        )
    path = spec if name in NAMED_ARMS else name
    own = tuple(settings_of_named(name, read_spec(spec, options.settings))) if name in NAMED_ARMS else ()
    settings = (*options.settings, *own, *further)
    source = read_spec(path, settings)
    plan = compile_spec(compile_request(source, replace(options, settings=settings)))
    return Arm(label=label, spec=path, settings=settings, plan=plan)


def settings_of_named(name: str, spec: SpecSource) -> Iterator[str]:
    """What is laid over a spec to make one of :data:`NAMED_ARMS` of it."""
    if name == STOCK:
        written = spec.data.get("compilation") or {}
        yield from (f"compilation.{field}=null" for field in NEW_FIELDS if field in written)
        yield f"engine.lowering={Lowering.NONE}"
    elif name != SPEC:
        yield f"engine.lowering={name}"
