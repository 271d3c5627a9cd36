"""The findings of a bench."""

from typing import Final

from servespec.diagnostics import Rule, Severity

DESIGN_REFUSED = Rule(
    "L028",
    "bench-design",
    Severity.ERROR,
    "the bench cannot be run as it is asked for",
    "A load that no server of this spec can take, or a number that measures nothing; found before anything starts.",
)
RESULTS_FOREIGN = Rule(
    "L029",
    "bench-results-foreign",
    Severity.ERROR,
    "the results file belongs to another bench",
    "A bench goes on where its file ends; one of another spec, engine or design is neither mixed in nor overwritten.",
)
ARM_FAILED = Rule(
    "L030",
    "bench-arm-failed",
    Severity.ERROR,
    "an arm of the bench could not be served",
    "`servespec serve` ended before the arm was ready, or under a load; its own finding stands in its log. What was "
    "measured until then is kept in the results file.",
)
CLIENT_FAILED = Rule(
    "L031",
    "bench-client-failed",
    Severity.ERROR,
    "the engine's bench client failed",
    "The load is made by vLLM's own client, in the engine's Python. Its output is in its log.",
    "vllm/benchmarks/serve.py: main",
)
TOKENIZER_KNOWS_FEW = Rule(
    "L037",
    "bench-small-tokenizer",
    Severity.WARNING,
    "the tokenizer has no text for most of the ids that dummy weights answer with",
    "Ids without text decode to nothing, and a stream then decodes its answer anew with every token. The API server "
    "takes a whole core for it at long answers, and what is measured is that core and not the GPU.",
)

RULES: Final = (DESIGN_REFUSED, RESULTS_FOREIGN, ARM_FAILED, CLIENT_FAILED, TOKENIZER_KNOWS_FEW)
