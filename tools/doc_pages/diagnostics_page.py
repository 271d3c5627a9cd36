"""docs/reference/diagnostics.md: every rule with its code, severity, reason and source."""

from itertools import groupby

from doc_pages.markdown import code, page, sentences, table
from servespec.cli.exit_codes import EXIT_REFUSED, EXIT_UNSUPPORTED, UNSUPPORTED_CODES
from servespec.diagnostics import Rule, Severity
from servespec.render.rules import every_rule
from servespec.runtime.run_rules import exit_code_of

_STAGES = {
    "S": ("Spec file", "Found in the file alone; `servespec validate` finds them without network or machine."),
    "R": ("Resolution", "Found when blanks are filled in from the model, the engine and the device."),
    "P": ("Plan", "What the planned server would do that is worth knowing before it is launched."),
    "L": ("Launch and run", "What went wrong between the command line and the end of the server."),
}


def diagnostics_page() -> str:
    rules = every_rule()
    groups = [(letter, tuple(group)) for letter, group in groupby(rules, lambda rule: rule.code[0])]
    order = {letter: at for at, letter in enumerate(_STAGES)}
    return page(
        "Diagnostics",
        sentences(
            "Every finding has a code that is never used for anything else; its letter names the stage. "
            "Errors refuse the spec or end the run, warnings and notes do not; `validate --strict` fails on warnings. "
            "`servespec explain CODE` prints one entry."
        ),
        *(_stage(letter, group) for letter, group in sorted(groups, key=lambda one: order[one[0]])),
    )


def _stage(letter: str, rules: tuple[Rule, ...]) -> str:
    title, text = _STAGES[letter]
    overview = table(
        ("code", "name", "severity", "summary"),
        [(f"[{r.code}](#{r.code.lower()})", r.name, str(r.severity), r.summary) for r in rules],
    )
    return "\n\n".join([f"## {letter}: {title}", sentences(text), overview, *(_entry(rule) for rule in rules)])


def _entry(rule: Rule) -> str:
    parts = [f"### {rule.code}", f"{rule.name}, {rule.severity}: {rule.summary}.", sentences(rule.explanation)]
    if rule.severity is Severity.ERROR:
        parts.append(f"Exit code {exit_code(rule)}.")
    if rule.source:
        parts.append(f"Source: {code(rule.source)}.")
    return "\n\n".join(parts)


def exit_code(rule: Rule) -> int:
    """The exit code of a command that an error of this rule ends."""
    if rule.code.startswith("L"):
        return exit_code_of(rule)
    return EXIT_UNSUPPORTED if rule.code in UNSUPPORTED_CODES else EXIT_REFUSED
