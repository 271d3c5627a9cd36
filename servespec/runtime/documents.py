"""Files by what they hold: a spec, what servespec writes, an engine's config or a recipe, found from their keys."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final

from servespec.compiler.facts.engine_fields import table, versions
from servespec.diagnostics import Diagnostic, Place, SpecError, has_errors
from servespec.runtime.config_rules import R017
from servespec.runtime.document_kinds import Kind, kind_by_hand, schemas, written_kind
from servespec.runtime.json_mapping import json_mapping
from servespec.runtime.spec_file import read_argument, spec_diagnostics, with_bases
from servespec.schema.overrides import with_overrides
from servespec.schema.source import SpecSource, read_source

_MOST_FAULTS: Final = 20
_SHOWN_CHARACTERS: Final = 200


@cache
def _validator(kind: Kind) -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(dict(schemas()[kind]))


@dataclass(frozen=True, slots=True)
class Document:
    """``data`` is plain; ``source`` has the places of what is written by hand, None for what servespec writes."""

    name: str
    kind: Kind
    data: Mapping[str, Any]
    source: SpecSource | None


def document_of(argument: str, settings: tuple[str, ...]) -> Document:
    """The document that an argument names, with ``settings`` laid over a spec; SpecError as in reading."""
    name, raw = read_argument(argument)
    document = read_document(raw, name)
    if document.kind is not Kind.SPEC or document.source is None:
        return document
    source = with_overrides(with_bases(document.source), settings)
    return Document(name, Kind.SPEC, source.data, source)


def read_document(raw: bytes, name: str) -> Document:
    """Raises SpecError where the text is neither JSON nor YAML that a spec may be."""
    data = json_mapping(raw) if raw.lstrip().startswith(b"{") else None
    written = None if data is None else written_kind(data)
    if data is not None and written is not None:
        return Document(name, written, data, None)
    source = read_source(raw, name)
    return Document(name, kind_by_hand(source.data), source.data, source)


def document_findings(
    document: Document, *, allow_code: bool, allow_unverified_engine: bool = False
) -> tuple[Diagnostic, ...]:
    """Everything that can be said of a document without network, machine or model."""
    source = document.source
    if source is None:
        return tuple(_schema_faults(document))
    if document.kind is Kind.SPEC:
        return spec_diagnostics(source, allow_code=allow_code, allow_unverified_engine=allow_unverified_engine)
    return tuple(_command_findings(document, source))


def _schema_faults(document: Document) -> Iterator[Diagnostic]:
    for error in islice(_validator(document.kind).iter_errors(document.data), _MOST_FAULTS):
        why = error.message.splitlines()[0][:_SHOWN_CHARACTERS]
        message = f"the file is no {document.kind}: {error.json_path}: {why}"
        yield R017.at(Place(document.name), message, "write it anew with the command that wrote it")


def _command_findings(document: Document, source: SpecSource) -> Iterator[Diagnostic]:
    """What the engine's parser would say of a config, or of every command of a recipe."""
    from servespec.compiler.command_line.file_commands import server_commands
    from servespec.compiler.command_line.reading import read_words
    from servespec.compiler.command_line.word import Word

    engine = table(versions()[-1])
    if document.kind is Kind.CONFIG:
        place = Place(document.name)
        model = ["model"] if "model" not in document.data else []
        texts = ("vllm", "serve", *model, "--config", document.name)
        words = tuple(Word(text, place) for text in texts)
        yield from read_words(words, engine, {document.name: source.text}).leftovers
        return
    for command in server_commands(source.text.encode(), document.name):
        yield from read_words(command.words, engine, {}).leftovers
        yield from command.found


def checked(document: Document) -> Mapping[str, Any]:
    """The data of what servespec wrote; SpecError where it is not valid."""
    found = document_findings(document, allow_code=False)
    if has_errors(found):
        raise SpecError(found)
    return document.data
