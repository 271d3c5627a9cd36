"""The commands of a file that start servers: a script, Markdown, a recipe, a manifest, or the engine's own config."""

import re
from collections.abc import Iterator

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.manifest import is_manifest, manifest_commands
from servespec.compiler.command_line.masking import masked
from servespec.compiler.command_line.program import serves
from servespec.compiler.command_line.recipe import is_recipe, recipe_commands
from servespec.compiler.command_line.server_command import ServerCommand
from servespec.compiler.command_line.shell_conditions import AFTER_SUCCESS, Condition
from servespec.compiler.command_line.shell_text import ShellCommand, shell_commands
from servespec.compiler.command_line.shell_words import Guess, ShellWord
from servespec.compiler.command_line.word import Word, on_one_line, quoted
from servespec.compiler.facts.engine_fields import table, versions
from servespec.diagnostics import Diagnostic, Place, Related, SpecError
from servespec.schema.source import SpecSource, read_documents, read_source
from servespec.schema.source_faults import Lines, Span
from servespec.schema.source_rules import S009

_YAML_NAMES = (".yaml", ".yml")
_FENCE = re.compile(r"^[ \t>]*(```+|~~~+)[ \t]*([\w-]*)[^\r\n]*$", re.MULTILINE)
_SHELLS = ("", "bash", "sh", "shell", "zsh", "console", "shell-session")
_LONGEST_TITLE = 3


def server_commands(raw: bytes, name: str) -> tuple[ServerCommand, ...]:
    """Every command of a file that starts a server, in its order; a recipe's variants come before its guide.

    Raises SpecError where there is none, where the file cannot be read, and where it is a spec.
    """
    if name.endswith(_YAML_NAMES):
        documents = _documents(raw, name)
        found = tuple(command for source in documents for command in _of_mapping(source))
        text = documents[0].text
    else:
        text = raw.decode("utf-8", errors="replace")
        found = tuple(_of_text(text, name))
    if not found:
        message = f"no line of the file starts a vLLM server, of {len(text.splitlines())}"
        raise SpecError([rules.S320.at(Place(name), message, "name a file that holds `vllm serve ...`")])
    return found


def _documents(raw: bytes, name: str) -> tuple[SpecSource, ...]:
    """The manifests of a file, as `kubectl apply` takes several; of any other file a second document is a fault."""
    try:
        return (read_source(raw, name),)
    except SpecError as error:
        if not any(one.rule is S009 for one in error.diagnostics):
            raise
        manifests = tuple(one for one in read_documents(raw, name) if is_manifest(one.data))
        if not manifests:
            raise
        return manifests


def _of_mapping(source: SpecSource) -> Iterator[ServerCommand]:
    newest = table(versions()[-1])
    if "servespec" in source.data:
        place = source.place_of_key(("servespec",))
        raise SpecError(
            [rules.S320.at(place, "the file is a spec already", f"`servespec plan {source.name}` plans it")]
        )
    if is_recipe(source.data):
        yield from recipe_commands(source)
        yield from _of_text(source.text, source.name)
        return
    if is_manifest(source.data):
        yield from manifest_commands(source)
        return
    place = Place(source.name)
    if not any(newest.flag(f"--{key}") for key in source.data):
        message = "no key of the file is a flag of vLLM"
        raise SpecError([rules.S320.at(place, message, "name a file that holds `vllm serve ...`, or its flags")])
    words = tuple(Word(text, place) for text in ("vllm", "serve", "--config", source.name))
    yield ServerCommand("the engine's own config", place, words)


def _of_text(text: str, name: str) -> Iterator[ServerCommand]:
    """Of the shell code in fences where there are any, else of the whole text."""
    fences = tuple(_fenced(text))
    lines = Lines(text)
    for span in fences or ((0, len(text)),):
        for command in shell_commands(text, span):
            made = _server_command(command, name, lines)
            if serves(made.words):
                yield made


def _fenced(text: str) -> Iterator[Span]:
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif fence[1].startswith(opening[1]) and not fence[2]:
            if opening[2].lower() in _SHELLS:
                yield opening.end(), fence.start()
            opening = None


def _server_command(command: ShellCommand, name: str, lines: Lines) -> ServerCommand:
    words = tuple(_word(word, name, lines) for word in (*command.exported, *command.words))
    first = lines.range_of(command.words[0].span).start
    title = f"line {first.line}: {on_one_line(' '.join(_title_words(command)))}"
    place = words[len(command.exported)].place
    return ServerCommand(title, place, words, tuple(_only_sometimes(command.conditions, place, lines)))


def _word(word: ShellWord, name: str, lines: Lines) -> Word:
    guesses = tuple(_guess(one, name, lines) for one in word.guesses)
    return Word(word.text, Place(name, lines.range_of(word.span)), unset=word.unset, guesses=guesses)


def _guess(guess: Guess, name: str, lines: Lines) -> Diagnostic:
    message = f"{quoted(guess.name)} is set only in {_where(guess.conditions[-1], lines)}, which is taken to run"
    related = [Related("set here otherwise", Place(name, lines.range_of(span))) for span in guess.instead]
    help_text = "check the spec, or write the value that you mean in its place"
    return rules.S321.at(Place(name, lines.range_of(guess.span)), message, help_text, related)


def _only_sometimes(conditions: tuple[Condition, ...], place: Place, lines: Lines) -> Iterator[Diagnostic]:
    """A command behind `&&` is the ordinary course of a script, so it is no branch."""
    branches = [one for one in conditions if one.words != AFTER_SUCCESS]
    if branches:
        yield rules.S322.at(place, f"the server is started only in {_where(branches[-1], lines)}")


def _where(condition: Condition, lines: Lines) -> str:
    return f"{condition.words} of line {lines.range_of(condition.span).start.line}"


def _title_words(command: ShellCommand) -> list[str]:
    """The program and its model, which tell commands apart."""
    texts = [one.text for one in masked([word.text for word in command.words]) if not re.match(r"\w+=", one.text)]
    start = next((at for at, text in enumerate(texts) if text.endswith("vllm") or "vllm" in text), 0)
    return texts[start : start + _LONGEST_TITLE]
