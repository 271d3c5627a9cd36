"""What keeps a spec from the worker extension; the choice of a lowering, its findings and its advice all ask here."""

from collections.abc import Iterator
from dataclasses import dataclass

from servespec.compiler.facts.architectures import LIST_READING_ARCHITECTURES
from servespec.compiler.graphs.hand_off import HAND_OFF_KEY
from servespec.compiler.lower import is_additional_config
from servespec.compiler.resolve.model_runner import ModelRunner
from servespec.compiler.resolve.resolution import Resolution

SpecPath = tuple[str, ...]

_LEGACY = "write `lowering: legacy`"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason, where it stands in the spec, and what to write instead."""

    message: str
    help: str
    path: SpecPath = ("engine", "lowering")


def can_take_extension(resolution: Resolution) -> bool:
    return next(extension_obstacles(resolution), None) is None


def extension_obstacles(resolution: Resolution) -> Iterator[Obstacle]:
    """Every reason why the extension cannot serve what was resolved."""
    request, engine = resolution.request, resolution.engine
    if not engine.has_extension_hook:
        yield Obstacle(f"vLLM {engine.version} has no hook for a worker extension", _LEGACY)
    if resolution.runner is ModelRunner.V1:
        yield Obstacle("the extension works on Model Runner V2, and the spec gets V1", "write `lowering: auto`")
    for key in request.spec.engine.args:
        if key.replace("-", "_").lstrip("_") == "worker_extension_cls":
            yield Obstacle("the engine takes one worker extension", _LEGACY, ("engine", "args", key))
        if is_additional_config(key) and HAND_OFF_KEY in request.spec.engine.args[key]:
            message = f"`{HAND_OFF_KEY}` is where the extension's workers find their graphs"
            yield Obstacle(message, "name your own key otherwise", ("engine", "args", key))
    if not LIST_READING_ARCHITECTURES.value.isdisjoint(request.target.traits.architectures):
        message = "this model captures graphs of its own for every size of the list, which the extension only fills"
        yield Obstacle(message, _LEGACY)
