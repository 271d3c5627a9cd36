"""The rules of a spec's text: structure, the five fields, what is written twice or in the wrong place.

They need no model facts, no network and no machine.
"""

from servespec.diagnostics import Rule, Severity

_SPLIT = "vLLM pull request 'separate prefill/decode graph sizes', Configuration"

S101 = Rule(
    "S101", "missing-field", Severity.ERROR, "a required field is not written",
    "The field has no default: only the user can know it.",
)  # fmt: skip
S102 = Rule(
    "S102", "unknown-key", Severity.ERROR, "the key is not a field of the spec",
    "Every key is checked at every depth, so that no setting is lost to a slip of the keyboard. A further flag of the "
    "engine goes under `engine.args`.",
)  # fmt: skip
S103 = Rule(
    "S103", "wrong-type", Severity.ERROR, "the value has the wrong type",
    "Text in quotes is not a number or a boolean, and a mapping is not a list: values are taken as written.",
)  # fmt: skip
S104 = Rule(
    "S104", "wrong-value", Severity.ERROR, "the value is not one of the field's values",
    "The help names the values that the field takes, the nearest first.",
)  # fmt: skip
S105 = Rule(
    "S105", "out-of-range", Severity.ERROR, "the value lies outside the field's range",
    "Sizes, counts and limits are at least 1 unless the field says otherwise; `[]`, not 0, disables a kind of graph.",
)  # fmt: skip
S106 = Rule(
    "S106", "value-form", Severity.ERROR, "the value is not written in a form that means one thing",
    "`4GiB` is 2^30 bytes and `4GB` 10^9; `8k` is 8000 and `8K` 8192; a fraction is `0.9` or `90%`. What could mean "
    "two things is refused with the right form.",
)  # fmt: skip
S107 = Rule(
    "S107", "misplaced-key", Severity.ERROR, "the key belongs to another section",
    "The field exists, under the section that the help names.",
)  # fmt: skip
S108 = Rule(
    "S108", "removed-field", Severity.ERROR, "the engine has renamed or removed this field",
    "The help names what took its place.",
)  # fmt: skip

S201 = Rule(
    "S201", "mixed-legacy-fields", Severity.ERROR, "legacy and new capture fields stand together",
    "`cudagraph_capture_sizes` and `max_cudagraph_capture_size` size prefill and decode together, in tokens; the five "
    "new fields size each in its own unit. Both at once would have two meanings.", _SPLIT,
)  # fmt: skip
S202 = Rule(
    "S202", "legacy-field", Severity.WARNING, "a legacy capture field is deprecated",
    "It keeps its meaning for both kinds of graph. The help gives the new fields that replace it.", _SPLIT,
)  # fmt: skip
S203 = Rule(
    "S203", "list-beyond-cap", Severity.ERROR, "a list of sizes exceeds its cap",
    "With both a cap and a list, the list must fit within the cap.", _SPLIT,
)  # fmt: skip
S204 = Rule(
    "S204", "sizes-out-of-order", Severity.WARNING, "a list of sizes is not ascending",
    "Order has no meaning; the sizes are taken in ascending order.",
)  # fmt: skip
S205 = Rule(
    "S205", "duplicate-size", Severity.WARNING, "a list of sizes names one twice",
    "A size is captured once.",
)  # fmt: skip
S206 = Rule(
    "S206", "same-setting-twice", Severity.ERROR, "one setting is written in two places",
    "Which of the two would take effect depends on the engine's order of reading, so neither does. Keep the field of "
    "the spec.",
)  # fmt: skip
S207 = Rule(
    "S207", "mode-against-sizes", Severity.ERROR, "the mode and the sizes contradict each other",
    "A mode captures some kinds of graph; sizes for a kind that the mode leaves out would be lost, and a mode whose "
    "only kind is disabled captures nothing.", _SPLIT,
)  # fmt: skip
S208 = Rule(
    "S208", "empty-legacy-list", Severity.ERROR, "the engine cannot take an empty legacy list",
    "The engine stops on an empty `cudagraph_capture_sizes` or a maximum of 0; there is no 'disable one kind' in the "
    "legacy fields. Use `cudagraph_mode`, or `[]` in one of the new lists.",
    "vllm/config/vllm.py: VllmConfig._set_cudagraph_sizes",
)  # fmt: skip
S209 = Rule(
    "S209", "legacy-max-and-list-differ", Severity.ERROR, "the legacy list and the legacy maximum disagree",
    "The engine refuses a maximum that is not the largest entry of the list.",
    "vllm/config/vllm.py: VllmConfig._set_cudagraph_sizes",
)  # fmt: skip
S210 = Rule(
    "S210", "v1-runner-with-new-fields", Severity.ERROR, "the new capture fields need Model Runner V2",
    "Model Runner V1 has one list for all kinds of graph and rejects the new fields.", _SPLIT,
)  # fmt: skip
S211 = Rule(
    "S211", "tiers-malformed", Severity.ERROR, "the tiers do not partition the batch sizes",
    "Tiers ascend by `up_to`, each has one but the last, and none exceeds `num_speculative_tokens`.",
)  # fmt: skip
S212 = Rule(
    "S212", "plan-relevant-elsewhere", Severity.ERROR, "a setting that changes the plan is not in its field",
    "A flag or variable that changes what is captured, how batches run or where memory goes has a field in the spec; "
    "under `engine` it would change the launch and not the plan.",
)  # fmt: skip
S213 = Rule(
    "S213", "code-needs-consent", Severity.ERROR, "the spec makes the engine run code from elsewhere",
    "A spec is data. What makes an engine import or run other code takes effect only with `--allow-code` on the "
    "command line; remote code also needs a pinned revision.",
)  # fmt: skip
S214 = Rule(
    "S214", "secret-in-spec", Severity.ERROR, "a secret stands in the spec",
    "Specs are shared and committed. Give the secret to the engine through its environment variable.",
)  # fmt: skip
S215 = Rule(
    "S215", "unknown-engine-flag", Severity.ERROR, "the engine has no such flag",
    "`engine.args` is checked against the flags of the engine version that the plan is for.",
)  # fmt: skip
S216 = Rule(
    "S216", "unknown-engine-variable", Severity.ERROR, "the variable is not one that the engine reads",
    "`engine.env` is an allow-list: the engine's own variables, and those of the libraries it is built on.",
)  # fmt: skip
S217 = Rule(
    "S217", "engine-value", Severity.ERROR, "the engine does not take this value",
    "Values under `engine.args` and engine fields are checked against the type that the engine declares.",
)  # fmt: skip
S218 = Rule(
    "S218", "unit-suspected", Severity.WARNING, "a number looks as if it were in another unit",
    "Decode sizes are request counts; legacy sizes and prefill sizes are token counts; a request has 1 + K tokens.",
)  # fmt: skip
S221 = Rule(
    "S221", "not-supported-by-engine-config", Severity.ERROR, "the engine refuses this combination",
    "The rule is the engine's own; the message says which.",
)  # fmt: skip

S222 = Rule(
    "S222", "empty-after-dropping", Severity.ERROR, "every size of a list is too large",
    "A list that ends up empty would disable its kind without a word; `[]` says that aloud.", _SPLIT,
)  # fmt: skip
S223 = Rule(
    "S223", "oversized", Severity.WARNING, "a size or cap is larger than any batch can be",
    "Prefill sizes above `max_num_batched_tokens` and decode sizes above `max_num_seqs` are dropped: no batch reaches "
    "them.", _SPLIT,
)  # fmt: skip

S224 = Rule(
    "S224", "override-form", Severity.ERROR, "an override is not `path=value`",
    "`--set scheduler.max_num_seqs=256` lays a value over the file's; the value is read as YAML.",
)  # fmt: skip
S225 = Rule(
    "S225", "not-migrated", Severity.ERROR, "the legacy fields cannot be replaced where they stand",
    "`migrate` changes these lines and no others; where an alias or a merge brings a field in, a person writes the "
    "replacement. The new fields reach the engine through a lowering; `none` passes the legacy ones alone.",
)  # fmt: skip
S226 = Rule(
    "S226", "base-unreadable", Severity.ERROR, "a file that `extends` names cannot be read",
    "`extends` is the name of a file, or a list of names, each taken from the folder of the file that names it. A spec "
    "without a folder, such as one made from a command line, extends nothing.",
)  # fmt: skip
S227 = Rule(
    "S227", "extends-itself", Severity.ERROR, "a file extends itself, directly or through others",
    "Values that all files share go into a file that extends none of them.",
)  # fmt: skip
S228 = Rule(
    "S228", "acceptance-malformed", Severity.ERROR, "how often drafts are accepted is not said, or said twice",
    "A K is as good as the drafts that are accepted of it. Rates are shares of all drafts by position, so they never "
    "rise, as vLLM's `vllm:spec_decode_num_accepted_tokens_per_pos` over `vllm:spec_decode_num_drafts`.",
    "vllm/v1/spec_decode/metrics.py: SpecDecodingProm",
)  # fmt: skip
S229 = Rule(
    "S229", "verification-grid-without-effect", Severity.WARNING, "the grid of adaptive verification has no effect",
    "`compilation.adaptive_verification_grid` says where adaptive verification has graphs, and it is off.",
)  # fmt: skip
S230 = Rule(
    "S230", "load-aware-impossible", Severity.ERROR, "verification cannot follow the load this way",
    "Below `load_aware.from_requests` a step verifies all K drafts, from there on as many as are worth their time. One "
    "K, one owner of the number of drafts and one count of requests are needed for that.",
)  # fmt: skip
S231 = Rule(
    "S231", "load-aware-from-one-request", Severity.WARNING, "verification is adaptive even at one request",
    "At one request all drafts are verified at the price of one, and choosing among them only costs time.",
    "load-aware compact verification capacity, Rejected approaches: always-on compact verification regresses C1",
)  # fmt: skip
S232 = Rule(
    "S232", "drafts-without-confidences", Severity.ERROR, "adaptive verification has nothing to choose drafts by",
    "It keeps the drafts that are likely to be accepted, by what the drafter says of each. An n-gram look-up says "
    "nothing, and hidden states that are handed out are no drafts: the engine makes no choice there, while its sampler "
    "still refuses steps that are too large for a choice.",
    "vllm/v1/worker/gpu/spec_decode/ngram/speculator.py: NgramGPUSpeculator; "
    "vllm/v1/worker/gpu/spec_decode/rejection_sampler.py: RejectionSampler",
)  # fmt: skip
S233 = Rule(
    "S233", "not-the-engines-own-name", Severity.WARNING, "only a plug-in can have registered this name",
    "Plug-ins of the engine may add quantization methods and load formats under names of their own. Where none has, "
    "the engine stops at start; the plan knows nothing of what a plug-in's name stands for.",
    "vllm/model_executor/layers/quantization/__init__.py: register_quantization_config; "
    "vllm/model_executor/model_loader/__init__.py: register_model_loader",
)  # fmt: skip
S236 = Rule(
    "S236", "tiers-of-replicas", Severity.ERROR, "replicas cannot draft by load",
    "Data-parallel replicas run their steps together and count their requests apart, so that tiers would give them "
    "different query lengths. The engine drops the tiers and drafts K at every load.",
    "vllm/config/vllm.py: VllmConfig._maybe_disable_dynamic_sd_for_data_parallel",
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Rule))
