"""The text of a spec from a command line, with what it could not take over as comments at its top."""

from collections.abc import Iterator, Mapping
from typing import Any

from servespec.compiler.command_line.reading import EVERY_ADDRESS
from servespec.compiler.command_line.word import on_one_line
from servespec.diagnostics import Diagnostic
from servespec.schema.dump import Path, dump_yaml
from servespec.schema.modeline import MODELINE

_LOWERING: Path = ("engine", "lowering")
_HOST: Path = ("serve", "host")


def imported_text(data: Mapping[str, Any], leftovers: tuple[Diagnostic, ...], title: str) -> str:
    """YAML; a finding that is no loss, such as a flag given twice, is told with the others."""
    comments: dict[Path, str] = {}
    if (data.get("engine") or {}).get("lowering") == "none":
        comments[_LOWERING] = "graphs as the unmodified engine makes them; `auto` captures what the plan asks for"
    if (data.get("serve") or {}).get("host") == EVERY_ADDRESS:
        comments[_HOST] = "every address of the machine, as the engine binds by itself; 127.0.0.1 is this machine alone"
    header = "\n".join(f"# {on_one_line(line)}" for line in _header(leftovers, title))
    return f"{MODELINE}\n{header}\n{dump_yaml(data, comments)}"


def _header(leftovers: tuple[Diagnostic, ...], title: str) -> Iterator[str]:
    yield f"Imported from {title}."
    if leftovers:
        yield "Not carried over, or not as written:"
    for one in leftovers:
        place = f" (line {one.place.range.start.line})" if one.place.range else ""
        yield f"- {one.message}{place}{f'; {one.help}' if one.help else ''}"
