"""Which parts of a model torch.compile cuts into pieces; PIECEWISE graphs of a part that it does not cut hold nothing.

Where graphs are breakable, every part has pieces.
Source: vllm/compilation/decorators.py: support_torch_compile; vllm/v1/worker/gpu/cudagraph_utils.py:
CudaGraphManager.run_pw_graph.
"""

from typing import Final

from servespec.compiler.facts.mtp_drafters import uncompiled_mtp_drafter
from servespec.compiler.facts.uncompiled_models import uncompiled_model
from servespec.compiler.graphs.shape import Runner
from servespec.compiler.model import Model
from servespec.compiler.resolve.drafting import Drafting
from servespec.compiler.resolve.request import ResolveRequest, engine_field
from servespec.schema.spec import ServingSpec

_OWN_CLASSES: Final = ("auto", "vllm")
"""The values of `model_impl` with which the engine runs classes of its own; Transformers' are compiled."""


def runners_that_compile(request: ResolveRequest, drafting: Drafting) -> frozenset[Runner]:
    """Those whose models torch.compile cuts where the compilation mode is VLLM_COMPILE."""
    parts = {Runner.TARGET: uncompiled_target(request), Runner.DRAFTER: uncompiled_drafter(request, drafting)}
    return frozenset(runner for runner, uncompiled in parts.items() if uncompiled is None)


def uncompiled_target(request: ResolveRequest) -> str | None:
    """The architecture that is served, if torch.compile takes no part of it."""
    if not _runs_own_classes(request.spec):
        return None
    target = request.target
    return uncompiled_model((*target.traits.architectures, *target.text_architectures))


def uncompiled_drafter(request: ResolveRequest, drafting: Drafting) -> str | None:
    """The engine's class that drafts, if torch.compile takes no part of it."""
    if drafting.method.value != "mtp" or request.draft is None or not _runs_own_classes(request.spec):
        return None
    return uncompiled_mtp_drafter(_names(request.draft))


def _names(model: Model) -> tuple[str, ...]:
    traits = model.traits
    return tuple(filter(None, (traits.model_type, *traits.architectures)))


def _runs_own_classes(spec: ServingSpec) -> bool:
    return engine_field(spec, "model", "model_impl", "auto") in _OWN_CLASSES
