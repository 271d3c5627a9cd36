"""Findings that several steps of reading make."""

from collections.abc import Iterator

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.word import Word, quoted
from servespec.compiler.environment import SECRET_VARIABLES
from servespec.compiler.facts.engine_fields import Fault
from servespec.compiler.fault_help import fault_help
from servespec.diagnostics import Diagnostic


def refused(name: str, word: Word, fault: Fault) -> Diagnostic:
    """The engine does not take a value; the path to what it does not take goes on with the name."""
    message = f"{quoted(name + fault.steps)}{word.where}: {fault.because}"
    return rules.S305.at(word.place, message, fault_help(fault))


def secret(name: str, setting: str, word: Word) -> Diagnostic:
    """A secret is left out; ``setting`` is the engine's name of it, of a flag or of a variable."""
    variable = setting if setting.isupper() else SECRET_VARIABLES.get(setting)
    help_text = f"set `{variable}` in the shell that starts the server" if variable else "keep it out of specs"
    return rules.S310.at(word.place, f"{quoted(name)}{word.where} may hold a secret and is not carried", help_text)


def uncertain(word: Word) -> Iterator[Diagnostic]:
    """What nothing in the script of ``word`` sets, or only a branch of it."""
    yield from word.guesses
    for reference in word.unset:
        message = f"nothing above sets {quoted(reference)} in {quoted(word.name)}{word.where}"
        yield rules.S318.at(word.place, message, "write its value in its place")
