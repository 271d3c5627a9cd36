"""The script that a command line gives a shell, as in `srun bash -c 'vllm serve MODEL'`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from servespec.compiler.command_line.shell_text import shell_commands
from servespec.compiler.command_line.shell_words import ShellVariable
from servespec.compiler.command_line.word import Word
from servespec.compiler.command_line.wrapper import ENTRY_POINT, Wrapper

_SHELLS: Final = ("sh", "bash", "dash", "zsh")
_SCRIPT_OPTION: Final = re.compile(r"-[a-z]*c")


@dataclass(frozen=True, slots=True)
class InnerCommand:
    """``wrapper`` starts the shell; ``words`` are a command of its script, what the script exports in front."""

    wrapper: Wrapper
    words: tuple[Word, ...]


def inner_commands(words: Sequence[Word]) -> Iterator[InnerCommand]:
    """Every command of every script that a shell in ``words`` is given; it sees what is set before the shell."""
    for at in range(1, len(words) - 1):
        shell = _shell_before(words, at) if _SCRIPT_OPTION.fullmatch(words[at].text) else None
        if shell is not None:
            wrapper, script = Wrapper(tuple(words[:shell])), words[at + 1]
            for command in shell_commands(script.text, variables=_variables(wrapper)):
                parts = (*command.exported, *command.words)
                inner = (Word(one.text, script.place, script.number, unset=one.unset) for one in parts)
                yield InnerCommand(wrapper, tuple(inner))


def _shell_before(words: Sequence[Word], at: int) -> int | None:
    """Where what stands before a shell ends, of the last one before the option at ``at``; None where there is none.

    A container with `--entrypoint SHELL` runs it behind the image, which ends where its options begin.
    """
    for shell in range(at - 1, -1, -1):
        text, before = words[shell].text, words[shell - 1].text if shell else ""
        if text.removeprefix(f"{ENTRY_POINT}=").rpartition("/")[2] in _SHELLS:
            return at if before == ENTRY_POINT or text.startswith(ENTRY_POINT) else shell
    return None


def _variables(wrapper: Wrapper) -> Mapping[str, ShellVariable]:
    return {name: ShellVariable((value,), (0, 0), (), word.unset, ()) for word, name, value in wrapper.variables()}
