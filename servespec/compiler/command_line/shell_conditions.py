"""Which commands of a shell script run only sometimes: the branches, loops, functions and lists that they stand in."""

from dataclasses import dataclass, replace
from typing import Final

from servespec.schema.source_faults import Span

_CLOSERS: Final = {"fi": "if", "done": "loop", "esac": "case", "}": "group"}
_LOOPS: Final = frozenset({"while", "until"})
_COUNTED_LOOPS: Final = frozenset({"for", "select"})
_PASSED_OVER: Final = frozenset({"!", "$", "time", "exec", "nohup"})
AFTER_SUCCESS: Final = "what follows the `&&`"
_AFTER_FAILURE: Final = "what follows the `||`"
_LISTS: Final = {"&&": AFTER_SUCCESS, "||": _AFTER_FAILURE}
_CASE_ENDS: Final = (";;", ";&", ";;&")


@dataclass(frozen=True, slots=True)
class Condition:
    """``words`` complete 'it runs only in ...'; the span of what begins it tells conditions apart."""

    words: str
    span: Span


@dataclass(frozen=True, slots=True)
class Part:
    """Words with their spans up to an operator, '' at the end of the text."""

    words: tuple[tuple[str, Span], ...]
    operator: str
    span: Span


@dataclass(frozen=True, slots=True)
class _Block:
    """``around`` are the conditions of the list that the block stands in; ``awaits`` a pattern of a `case`."""

    kind: str
    around: tuple[Condition, ...]
    opener: Condition
    condition: Condition | None = None
    awaits: bool = False


class Blocks:
    """The blocks that are open at one place of a script, read from top to bottom."""

    __slots__ = ("_defined", "_list", "_open", "_pattern")

    def __init__(self) -> None:
        self._open: list[_Block] = []
        self._list: tuple[Condition, ...] = ()
        self._defined: Condition | None = None
        self._pattern: list[tuple[str, Span]] = []

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What has to hold for a command that stands here, the outermost first."""
        own = (one for block in self._open for one in (*block.around, *((block.condition,) if block.condition else ())))
        return (*own, *self._list)

    @property
    def subshells(self) -> int:
        """How many shells of their own are open, whose variables end with them."""
        return sum(block.kind == "subshell" for block in self._open)

    def command_at(self, part: Part) -> int:
        """Where the command of ``part`` starts, behind keywords; the blocks that those open are open then."""
        at = 0
        while at < len(part.words):
            if self._awaits_pattern and (self._pattern or part.words[at][0] != "esac"):
                self._pattern += part.words[at:]
                return len(part.words)
            taken = self._keyword(part, at)
            if not taken:
                return at
            at += taken
        return at

    def leave(self, part: Part) -> None:
        """What the operator behind ``part`` opens or ends."""
        operator = part.operator
        if self._awaits_pattern:
            self._begin_branch(operator)
        elif operator == "(":
            self._open_parenthesis(part)
        elif operator == ")":
            self._close_parenthesis(part)
        elif operator in _LISTS:
            self._go_on(Condition(_LISTS[operator], part.span))
        elif operator in _CASE_ENDS and self._open and self._open[-1].kind == "case":
            self._list, self._pattern = (), []
            self._open[-1] = replace(self._open[-1], condition=None, awaits=True)
        elif operator != "|" and not (operator in "\r\n" and not part.words):
            self._list = ()

    # Keywords

    @property
    def _awaits_pattern(self) -> bool:
        return bool(self._open) and self._open[-1].awaits

    def _keyword(self, part: Part, at: int) -> int:
        """How many words the keyword at ``at`` takes, 0 where there is none."""
        word, span = part.words[at]
        if word in _PASSED_OVER:
            return 1
        if word in _CLOSERS:
            self._close(_CLOSERS[word])
        elif word == "if":
            self._enter("if", Condition("the `if`", span))
        elif word in _LOOPS:
            self._enter("loop", Condition(f"the `{word}`", span))
        elif word in _COUNTED_LOOPS:
            self._enter("loop", Condition(f"the `{word}`", span))
            return len(part.words) - at
        elif word == "case":
            return self._case(part, at)
        elif word == "function":
            return self._function(part, at)
        elif word == "{":
            self._enter("group", Condition("", span), self._defined)
            self._defined = None
        elif word in ("then", "do", "elif", "else"):
            self._branch(word, span)
        else:
            return 0
        return 1

    def _branch(self, word: str, span: Span) -> None:
        wanted = "loop" if word == "do" else "if"
        if not self._open or self._open[-1].kind != wanted:
            return
        block, here = self._open[-1], Condition(f"the `{word}`", span)
        if word == "elif":
            self._open[-1] = replace(block, opener=here, condition=here)
        else:
            self._open[-1] = replace(block, condition=here if word == "else" else block.opener)

    def _case(self, part: Part, at: int) -> int:
        """`case WORD in`, with the first pattern where it stands on the same line."""
        self._enter("case", Condition("", part.words[at][1]))
        self._open[-1] = replace(self._open[-1], awaits=True)
        self._pattern = []
        before = next((i for i in range(at + 1, len(part.words)) if part.words[i][0] == "in"), len(part.words) - 1)
        return before + 1 - at

    def _begin_branch(self, operator: str) -> None:
        """A pattern ends with its parenthesis."""
        texts = [text for text, _ in self._pattern if text != "in"]
        if operator == ")" and texts:
            here = Condition(f"the case `{'|'.join(texts)})`", self._pattern[-1][1])
            self._open[-1] = replace(self._open[-1], condition=here, awaits=False)
            self._list = ()

    def _function(self, part: Part, at: int) -> int:
        """`function NAME {`."""
        name, span = part.words[at + 1] if at + 1 < len(part.words) else ("", part.words[at][1])
        self._defined = Condition(f"the function `{name}`", span)
        return min(2, len(part.words) - at)

    def _open_parenthesis(self, part: Part) -> None:
        """Behind a name it begins a function, alone a shell of its own."""
        if part.words and self._defined is None and part.words[0][0] not in _COUNTED_LOOPS:
            name, span = part.words[-1]
            self._defined = Condition(f"the function `{name}`", span)
        elif not part.words:
            self._enter("subshell", Condition("", part.span))

    def _close_parenthesis(self, part: Part) -> None:
        if self._defined is not None and part.words:
            self._defined = None
        elif self._defined is None and self._open and self._open[-1].kind == "subshell":
            self._close("subshell")

    # The stack

    def _enter(self, kind: str, opener: Condition, condition: Condition | None = None) -> None:
        self._open.append(_Block(kind, self._list, opener, condition))
        self._list = ()

    def _close(self, kind: str) -> None:
        """The innermost block of a kind, with whatever a script left open inside it."""
        at = next((i for i in reversed(range(len(self._open))) if self._open[i].kind == kind), None)
        if at is not None:
            self._list = self._open[at].around
            del self._open[at:]

    def _go_on(self, condition: Condition) -> None:
        """What follows `||` runs where the rest failed, so what holds there says nothing of what comes after it."""
        after_or = bool(self._list) and self._list[-1].words == _AFTER_FAILURE
        self._list = (condition,) if condition.words == _AFTER_FAILURE or after_or else (*self._list, condition)
