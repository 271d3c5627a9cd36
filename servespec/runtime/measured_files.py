"""Files of an earlier run that a plan is told of: the record of a launch, documents of step times."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servespec.compiler.curves.profile import Profile, profile_of
from servespec.compiler.curves.step_times import StepTimes, step_times_of
from servespec.compiler.memory.measurement import Measurement, measurement_of
from servespec.diagnostics import Place, SpecError
from servespec.runtime import config_rules as rules
from servespec.runtime.json_mapping import json_mapping
from servespec.runtime.spec_file import base_folder
from servespec.schema.source import SpecSource
from servespec.schema.spec import ServingSpec


def read_measured(paths: Sequence[Path]) -> dict[str, Any]:
    """The fields of a compile request that ``paths`` fill, each a file or the folder of a record.

    Raises SpecError where one is neither kind, tells nothing, or is the second of its kind.
    """
    found: dict[str, Any] = {}
    for path in paths:
        read = _read(path)
        name = "measurement" if isinstance(read, Measurement) else "step_times"
        if name in found:
            message = f"`{found[name].name}` is of the same kind, and one of each can be used"
            raise SpecError([rules.R013.at(Place(read.name), message, "leave one of them out")])
        found[name] = read
    return found


def curve_profile(spec: ServingSpec, source: SpecSource) -> Profile | None:
    """The step times that a `from_curve` below `speculative` names; None where the spec names none.

    Raises SpecError where a file of them cannot be read, is of another kind, or where they do not go together.
    """
    files = spec.speculative.curve_files if spec.speculative is not None else None
    if files is None:
        return None
    owner, names = files
    place = source.place_of(("speculative", owner, "from_curve"))
    return _profile(names, base_folder(source), place)


def profile_in(files: Sequence[str]) -> Profile:
    """The step times in files that a command names.  Raises SpecError as for those that a spec names."""
    return _profile(files, Path(), Place(files[0]))


def _profile(files: Sequence[str], base: Path, place: Place) -> Profile:
    profile = profile_of({name: _curve_document(base / name, name, place) for name in files})
    if isinstance(profile, str):
        raise SpecError([rules.R019.at(place, profile, _PROFILE_HELP)])
    return profile


_PROFILE_HELP = "`servespec profile SPEC -o FILE` writes a curve"


def _curve_document(path: Path, name: str, place: Place) -> Mapping[str, Any]:
    from servespec.runtime.document_kinds import Kind
    from servespec.runtime.documents import checked, read_document

    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"the curve `{name}` cannot be read: {(error.strerror or 'unreadable').lower()}"
        raise SpecError([rules.R019.at(place, message, _PROFILE_HELP)]) from None
    if json_mapping(raw) is None:
        raise SpecError([rules.R019.at(place, f"`{name}` holds no JSON object", _PROFILE_HELP)])
    document = read_document(raw, name)
    if document.kind is not Kind.STEPS:
        message = f"`{name}` is a file of the kind {document.kind}, not of step times"
        raise SpecError([rules.R019.at(place, message, _PROFILE_HELP)])
    return checked(document)


def _read(path: Path) -> Measurement | StepTimes:
    from servespec.runtime.document_kinds import Kind
    from servespec.runtime.documents import checked, document_of
    from servespec.runtime.record import RECORD_NAME

    name = str(path / RECORD_NAME if path.is_dir() else path)
    document = document_of(name, ())
    if document.kind is Kind.STEPS:
        return step_times_of(checked(document), name)
    if document.kind is not Kind.RECORD:
        help_text = "name the record that `serve --record DIR` left, or what `steps --format json` wrote"
        raise SpecError([rules.R013.at(Place(name), f"it is a file of the kind {document.kind}", help_text)])
    found = measurement_of(checked(document), name)
    if isinstance(found, str):
        raise SpecError([rules.R013.at(Place(name), found, "launch the spec once with `serve --record DIR`")])
    return found
