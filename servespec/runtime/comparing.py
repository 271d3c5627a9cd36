"""The plan that another one is compared with: of the same spec by another way, of another spec, or read from a file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from servespec.compiler.pipeline import compile_spec
from servespec.compiler.plan import Plan
from servespec.diagnostics import Diagnostic, Place, SpecError
from servespec.provenance import PRESET_PREFIX
from servespec.runtime.capture import Verdict
from servespec.runtime.config_rules import R018, R024
from servespec.runtime.document_kinds import Kind
from servespec.runtime.documents import checked, document_of
from servespec.runtime.gather import Options, compile_request
from servespec.schema.nearest import nearest
from servespec.schema.overrides import with_overrides
from servespec.schema.parse import parse_spec
from servespec.schema.source import SpecSource

STOCK = "stock"
LEGACY = "legacy"
_HELP = "name a spec, a preset, the JSON of a plan, or a record"


def plan_against(argument: str, plan: Plan, options: Options) -> Mapping[str, Any]:
    """The JSON form of the plan that ``argument`` names, to stand beside ``plan``.

    Raises SpecError where it is refused, or where a file holds no plan.
    """
    if argument == LEGACY:
        source = with_overrides(plan.resolution.request.source, (f"engine.lowering={LEGACY}",))
        return compile_spec(compile_request(source, replace(options, with_stock=False))).to_json()
    if argument != "-" and not argument.startswith(PRESET_PREFIX) and not Path(argument).exists():
        raise SpecError([_nothing(argument)])
    document = document_of(argument, ())
    if document.kind in (Kind.PLAN, Kind.RECORD):
        return checked(document)
    if document.kind is not Kind.SPEC or document.source is None:
        message = f"`{argument}` holds no plan: it is a file of the kind {document.kind}"
        raise SpecError([R018.at(Place(argument), message, _HELP)])
    return compile_spec(compile_request(document.source, _options_for(document.source, plan, options))).to_json()


def drift_findings(document: Mapping[str, Any], argument: str) -> tuple[Diagnostic, ...]:
    """Of a record whose launch was seen to capture something else than the plan in it."""
    if document.get("measured", {}).get("verdict") != Verdict.DIFFERS:
        return ()
    help_text = "read the column `captured` of its rows"
    return (R024.at(Place(argument), "its launch captured something else than the plan that is compared", help_text),)


def _nothing(argument: str) -> Diagnostic:
    near = nearest(argument, (STOCK, LEGACY), limit=1)
    help_text = f"did you mean `{near[0]}`?" if near else _HELP
    return R018.at(Place(argument), f"`{argument}` is no file, and not `{STOCK}` or `{LEGACY}`", help_text)


def _options_for(source: SpecSource, plan: Plan, options: Options) -> Options:
    """Config files of the command line are those of a model; another model has its own.

    Values laid over the first spec, and the record of its launch, say nothing of the second.
    """
    first, second = plan.resolution.request.spec, parse_spec(source).spec
    same_model = second is not None and second.model.id == first.model.id
    drafts = [None if spec is None or spec.speculative is None else spec.speculative.model for spec in (first, second)]
    return Options(
        allow_code=options.allow_code,
        allow_unverified_engine=options.allow_unverified_engine,
        model_config=options.model_config if same_model else None,
        draft_config=options.draft_config if drafts[0] == drafts[1] else None,
    )
