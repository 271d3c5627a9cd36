"""Remedies that a spec asks for and does not get."""

from collections.abc import Iterator

from servespec.compiler import plan_rules as rules
from servespec.compiler.checks.subject import Check, Findable
from servespec.compiler.extension import can_take_extension
from servespec.compiler.facts.cudagraph_mode import CudaGraphMode
from servespec.compiler.facts.devices import is_cpu
from servespec.compiler.lower import Lowering
from servespec.compiler.remedies import asked_remedies, remedies_with_effect, why_idle
from servespec.diagnostics import Diagnostic


def _without_effect(subject: Findable) -> Iterator[Diagnostic]:
    for remedy in asked_remedies(subject.resolution.request.spec):
        because = why_idle(remedy, subject.resolution, subject.asked)
        if because:
            message = f"`remedies.{remedy}` has no effect here: {because}"
            yield rules.P128.at(subject.key_place("remedies", remedy), message, "delete it")


def _without_extension(subject: Findable) -> Iterator[Diagnostic]:
    if subject.lowering is Lowering.EXTENSION:
        return
    help_text = "write `engine.lowering: extension`" if _could_take_it(subject) else "delete it"
    for remedy in remedies_with_effect(subject.resolution, subject.asked):
        message = f"`remedies.{remedy}` needs the worker extension, and the lowering is `{subject.lowering}`"
        yield rules.R116.at(subject.key_place("remedies", remedy), message, help_text)


def _could_take_it(subject: Findable) -> bool:
    captures = subject.frame.mode is not CudaGraphMode.NONE and not is_cpu(subject.resolution.device)
    return captures and can_take_extension(subject.resolution)


CHECKS: tuple[Check, ...] = (_without_effect, _without_extension)
