"""A command line, or a file that holds some, read and written as a spec."""

from collections.abc import Sequence
from dataclasses import dataclass

from servespec.compiler.command_line.config_file import misses_model
from servespec.compiler.command_line.file_commands import server_commands
from servespec.compiler.command_line.importing import imported_text
from servespec.compiler.command_line.reading import as_it_listens, command_line_source, read_words
from servespec.compiler.command_line.server_command import ServerCommand
from servespec.compiler.command_line.word import typed_words
from servespec.compiler.facts.engine_fields import table, versions
from servespec.compiler.parallel_ranks import ranks
from servespec.diagnostics import COMMAND_LINE, Diagnostic, Place, in_file_order
from servespec.runtime.command_file import config_texts, on_the_engine_as_it_is
from servespec.runtime.spec_file import read_argument, spec_diagnostics
from servespec.schema.overrides import with_overrides
from servespec.schema.source import SpecPath, read_source

IMPORTED = "the imported spec"
_MODEL: SpecPath = ("model", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """``leftovers`` are about the command; ``findings``, with lines of ``text``, about the spec that it became."""

    text: str
    leftovers: tuple[Diagnostic, ...]
    findings: tuple[Diagnostic, ...]


def commands_of(words: Sequence[str]) -> tuple[ServerCommand, ...]:
    """The command that ``words`` are, or those of the one file or standard input that they name.

    Raises SpecError where there is none.
    """
    if len(words) > 1:
        return (ServerCommand("a command line", Place(COMMAND_LINE), typed_words(words)),)
    name, raw = read_argument(words[0])
    return server_commands(raw, name)


def imported(command: ServerCommand, gpu: str, count: int | None, settings: tuple[str, ...]) -> Import:
    """The spec of one command, with ``settings`` laid over it; SpecError where one of those is none."""
    texts = [word.text for word in command.words]
    read = read_words(command.words, table(versions()[-1]), config_texts(texts))
    needed = count or ranks(read.data.get("parallel", {}))
    source = command_line_source(on_the_engine_as_it_is(as_it_listens(read)), gpu, needed)
    laid = with_overrides(source, settings)
    # A model of `--set` is the one that the command does not name.
    has_model = laid.place_of(_MODEL) != source.place_of(_MODEL)
    leftovers = in_file_order(one for one in (*read.leftovers, *command.found) if not (has_model and misses_model(one)))
    where = command.place.file
    text = imported_text(laid.data, leftovers, command.title if where == COMMAND_LINE else f"{where}, {command.title}")
    findings = spec_diagnostics(read_source(text, IMPORTED), allow_code=True)
    return Import(text=text, leftovers=leftovers, findings=in_file_order(findings))
