"""Files of an earlier run that a plan is told of: the record of a launch, the document of step times."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servespec.compiler.measured_steps import StepTimes, step_times_of
from servespec.compiler.memory.measurement import Measurement, measurement_of
from servespec.diagnostics import Place, SpecError
from servespec.runtime import config_rules as rules


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
    from servespec.runtime.documents import Kind, checked, document_of
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
