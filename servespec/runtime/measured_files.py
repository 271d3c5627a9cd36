"""Files of an earlier run that a plan is told of: the record of a launch, the document of step times."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servespec.compiler.measured_steps import StepTimes, step_times_of
from servespec.compiler.memory.measurement import Measurement, measurement_of
from servespec.diagnostics import Place, SpecError
from servespec.runtime import config_rules as rules

_HELP = "name the record that `serve --record DIR` left, or what `steps --format json` wrote"


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


def _read(path: Path) -> Measurement | StepTimes:
    from servespec.runtime.record import RECORD_NAME, read_record

    file = path / RECORD_NAME if path.is_dir() else path
    document = _document(file)
    if document.get("sizes") is not None:
        return _step_times(document, file)
    found = measurement_of(read_record(file), str(file))
    if isinstance(found, str):
        raise SpecError([rules.R013.at(Place(str(file)), found, "launch the spec once with `serve --record DIR`")])
    return found


def _document(file: Path) -> Mapping[str, Any]:
    """Empty where it is no mapping, which is then refused as no record."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"it cannot be read: {(error.strerror or 'unreadable').lower()}"
        raise SpecError([rules.R013.at(Place(str(file)), message, _HELP)]) from None
    except ValueError:
        return {}
    return document if isinstance(document, Mapping) else {}


def _step_times(document: Mapping[str, Any], file: Path) -> StepTimes:
    import jsonschema

    from servespec.runtime.step_times_document import STEP_TIMES_SCHEMA

    try:
        jsonschema.validate(document, STEP_TIMES_SCHEMA)
    except jsonschema.ValidationError as error:
        message = f"it is no document of step times: {error.json_path}: {error.message[:200]}"
        raise SpecError([rules.R013.at(Place(str(file)), message, _HELP)]) from None
    return step_times_of(document, str(file))
