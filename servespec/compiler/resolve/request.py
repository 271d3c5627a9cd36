"""What resolution starts from, and the few readings of a spec that several resolvers share."""

from dataclasses import dataclass
from typing import Any

from servespec.compiler.curves.profile import Profile
from servespec.compiler.engine import Engine
from servespec.compiler.facts.cudagraph_mode import CompilationMode, CudaGraphMode
from servespec.compiler.facts.devices import Device
from servespec.compiler.facts.engine_fields import EngineTable
from servespec.compiler.facts.model_traits import LONG_VARIABLE, limited_to_draft, longest_askable_len
from servespec.compiler.model import Model
from servespec.compiler.resolve.step import Refusal
from servespec.provenance import Origin, Resolved
from servespec.schema.source import SpecSource
from servespec.schema.spec import ServingSpec
from servespec.units import Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """All that resolution depends on; nothing is looked up from the machine.

    ``profile`` has the times of steps that `speculative.dynamic.from_curve` names.
    """

    spec: ServingSpec
    source: SpecSource
    engine: Engine
    table: EngineTable
    device: Device
    target: Model
    draft: Model | None
    profile: Profile | None = None


def engine_field(spec: ServingSpec, section: str, name: str, default: Any) -> Any:
    """A field of the engine as an open section has it, else the engine's default."""
    part = getattr(spec, section)
    return default if part is None else part.engine_fields.get(name, default)


def asked_compilation(spec: ServingSpec) -> CompilationMode | None:
    """How the spec has the engine compile, None where it leaves that to the engine.

    Source: vllm/config/compilation.py: CompilationConfig.validate_mode_before.
    """
    written = engine_field(spec, "compilation", "mode", None)
    if isinstance(written, str):
        return CompilationMode[written.upper()]
    return None if written is None else CompilationMode(written)


def turns_on(spec: ServingSpec, variable: str) -> bool:
    """Whether the spec turns a variable of the engine on that is off by default."""
    return str(spec.engine.env.get(variable, "0")) not in ("0", "False")


def variable_count(spec: ServingSpec, variable: str) -> int | None:
    """The number that the spec gives a variable of the engine, None where it gives none."""
    written = str(spec.engine.env.get(variable, ""))
    return int(written) if written.isdecimal() else None


def all2all_backend(spec: ServingSpec) -> str:
    return str(engine_field(spec, "parallel", "all2all_backend", "allgather_reducescatter"))


def max_model_len(request: ResolveRequest) -> Resolved[Tokens | None]:
    written = request.spec.model.max_model_len
    own = request.target.max_model_len
    if written is not None:
        own = Resolved(Tokens(written), Origin.SPEC, "set in the spec")
    speculative, draft = request.spec.speculative, request.draft
    if speculative is None or speculative.method != _OWN_POSITIONS or draft is None or own.value is None:
        return own
    limited = limited_to_draft(own.value, draft.max_model_len.value)
    return own if limited == own.value else Resolved(limited, Origin.DERIVED, "the draft model follows no further")


def context_refusals(request: ResolveRequest) -> tuple[Refusal, ...]:
    """A length above what the model's config names, which the engine takes with a variable alone.

    A pooling model may have a length of its own beside its config.

    Source: vllm/config/model.py: _get_and_verify_max_len.
    """
    spec, target = request.spec, request.target
    written = spec.model.max_model_len
    longest = longest_askable_len(
        target.config, without_window=engine_field(spec, "model", "disable_sliding_window", False) is True
    )
    if written is None or longest is None or written <= longest or target.traits.is_pooling:
        return ()
    if turns_on(spec, LONG_VARIABLE):
        return ()
    because = f"`{written}` is above the {longest} tokens of the model's config"
    help_text = (
        f"write `{longest}` or less, or `engine.env.{LONG_VARIABLE}: 1` where longer positions are known to work"
    )
    return (Refusal("model.max_model_len", because, _LONGEST, help=help_text),)


_LONGEST = "vllm/config/model.py: _get_and_verify_max_len"
_OWN_POSITIONS = "draft_model"
"""The method whose draft keeps its own longest context; the others take on the target's.

Source: vllm/config/speculative.py: SpeculativeConfig.draft_shares_target_positions.
"""


def asked_mode(spec: ServingSpec) -> CudaGraphMode | None:
    mode = spec.compilation.cudagraph_mode
    return None if mode is None else CudaGraphMode(mode)


def verifies_adaptively(spec: ServingSpec) -> bool:
    return spec.speculative is not None and spec.speculative.verifies_adaptively


def uses_microbatches(spec: ServingSpec) -> bool:
    dbo = engine_field(spec, "parallel", "enable_dbo", False)
    return bool(dbo) or engine_field(spec, "parallel", "ubatch_size", 0) > 1
