"""What to type in place of a value that the engine does not take."""

from servespec.compiler.facts.engine_fields import Fault
from servespec.schema.nearest import nearest


def fault_help(fault: Fault) -> str:
    """The nearest of the choices, else what is expected."""
    near = nearest(fault.written, map(str, fault.choices), limit=1) if isinstance(fault.written, str) else ()
    if near:
        return f"did you mean `{near[0]}`?"
    if fault.choices and fault.expected:
        return "write one of them"
    if fault.expected.startswith("true or false") and isinstance(fault.written, str):
        return "write `true` or `false`, without quotes"
    return f"write {fault.expected}" if fault.expected else "delete it"
