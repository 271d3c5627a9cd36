"""The findings of timed steps."""

from typing import Final

from servespec.diagnostics import Rule, Severity

STEPS_WITHOUT_EXTENSION = Rule(
    "L032",
    "steps-without-extension",
    Severity.ERROR,
    "steps can be timed under the worker extension alone",
    "`steps` runs inside the engine's workers, and the worker extension is what brings it there.",
)
STEPS_DESIGN = Rule(
    "L033",
    "steps-design",
    Severity.ERROR,
    "the steps cannot be timed as asked for",
    "A size that no step of this spec can have, or that is no number; found before anything starts.",
)
STEPS_FAILED = Rule(
    "L034",
    "steps-failed",
    Severity.ERROR,
    "steps could not be timed",
    "A worker left no result, the engine failed in a batch, or it cannot run steps made by hand. What was timed until "
    "then is in the result.",
)
STEPS_INCOMPLETE = Rule(
    "L035",
    "steps-incomplete",
    Severity.WARNING,
    "a size was not timed",
    "No graph takes it, or the engine cannot hold it; the finding says which. Nothing is known of that size.",
)
GRAPH_DOES_NOT_PAY = Rule(
    "L036",
    "graph-does-not-pay",
    Severity.WARNING,
    "a step is slower with a graph than without",
    "The 95 % interval of eager over graph lies below 1: the graph takes memory and capture time, and its steps are "
    "slower than the same steps without graphs on this machine.",
)

RULES: Final = (STEPS_WITHOUT_EXTENSION, STEPS_DESIGN, STEPS_FAILED, STEPS_INCOMPLETE, GRAPH_DOES_NOT_PAY)
