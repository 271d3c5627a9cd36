"""How the program ends: one number for each way, and which findings end it so."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servespec.diagnostics import SpecError

EXIT_REFUSED, EXIT_USAGE, EXIT_DOES_NOT_FIT, EXIT_UNSUPPORTED, EXIT_LAUNCH_FAILED, EXIT_DIFFERS = 1, 2, 3, 4, 5, 6


EXIT_OUR_FAULT = 70


LAUNCH_FAILED_CODES = frozenset({"L010", "L030", "L031"})


UNSUPPORTED_CODES = frozenset({"R004", "R005", "R009", "R010", "R011", "R116", "R118", "L027", "L032"})


DOES_NOT_FIT_CODES = frozenset({"P126", "P129"})


def refusal_code(error: "SpecError") -> int:
    """Of what was refused, or could not be done."""
    from servespec.diagnostics import Severity

    codes = {finding.code for finding in error.diagnostics if finding.severity is Severity.ERROR}
    if codes & UNSUPPORTED_CODES:
        return EXIT_UNSUPPORTED
    if codes & LAUNCH_FAILED_CODES:
        return EXIT_LAUNCH_FAILED
    return EXIT_DOES_NOT_FIT if codes and codes <= DOES_NOT_FIT_CODES else EXIT_REFUSED
