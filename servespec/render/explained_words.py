"""Which fields of a spec take a word, and which words a field takes, servespec's own and the engine's."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic.fields import FieldInfo

from servespec.compiler.engine_homes import config_home, flag_home, section_fields
from servespec.compiler.facts.engine_fields import EngineTable, FieldType
from servespec.schema.parse import sections
from servespec.schema.spec import NESTED_SECTIONS, OpenSection, Section, ServingSpec


def words_taken(path: str, engine: EngineTable) -> tuple[str, ...]:
    """What the field at ``path`` takes by name, in the order declared."""
    return _own_words().get(path, ()) or _engine_words(engine).get(path, ())


def fields_taking(word: str, engine: EngineTable) -> tuple[str, ...]:
    """The paths of the fields that take ``word``, those that servespec declares itself first.

    In another case where none takes it as written.
    """
    taken = [*_own_words().items(), *_engine_words(engine).items()]
    exact = dict.fromkeys(path for path, words in taken if word in words)
    alike = (path for path, words in taken if word.casefold() in map(str.casefold, words))
    own = {path for path, _ in _own_fields()}
    return tuple(sorted(exact or dict.fromkeys(alike), key=lambda path: path not in own))


def every_word(engine: EngineTable) -> Iterator[str]:
    for words in (*_own_words().values(), *_engine_words(engine).values()):
        yield from words


def _own_words() -> Mapping[str, tuple[str, ...]]:
    """The texts that annotations of hand-written fields list."""
    return {path: words for path, info in _own_fields() if (words := tuple(_texts_in(info.annotation)))}


def _own_fields() -> Iterator[tuple[str, FieldInfo]]:
    owners: list[tuple[str, type[Section]]] = [("", ServingSpec), *sections(), *NESTED_SECTIONS]
    for owner, model in owners:
        for name, info in model.model_fields.items():
            yield f"{owner}.{name}".removeprefix("."), info


def _texts_in(annotation: Any) -> Iterator[str]:
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _texts_in(part)


def _engine_words(engine: EngineTable) -> Mapping[str, tuple[str, ...]]:
    """The choices of the engine's fields and flags, by their homes in a spec."""
    found: dict[str, tuple[str, ...]] = {}
    for home, kind in _engine_types(engine):
        words = tuple(str(choice) for choice in kind.all_choices if isinstance(choice, str))
        if home is not None and words:
            found.setdefault(home, words)
    return found


def _engine_types(engine: EngineTable) -> Iterator[tuple[str | None, FieldType]]:
    for _, model in sections():
        for field in section_fields(model, engine) if issubclass(model, OpenSection) else ():
            yield config_home(field.config, field.name), field.type
    for name in engine.flags():
        flag = engine.flag(name)
        assert flag is not None, name
        yield flag_home(flag) or f"engine.args.{flag.long.removeprefix('--')}", flag.type
