"""The rules of resolution and of plans: what the engine would do that a person should know before launch."""

from servespec.diagnostics import Rule, Severity

_SPLIT = "vLLM pull request 'separate prefill/decode graph sizes'"

R101 = Rule(
    "R101", "engine-refuses", Severity.ERROR, "the engine refuses this configuration",
    "The engine would stop at start. The message gives its rule, and where that stands in its source.",
)  # fmt: skip
R102 = Rule(
    "R102", "engine-warns", Severity.WARNING, "the engine warns about this configuration",
    "The engine goes on, with a line in its log. The message says what it means.",
)  # fmt: skip
R103 = Rule(
    "R103", "not-decidable-before-launch", Severity.WARNING, "something cannot be decided before launch",
    "The engine decides it from the loaded model or from installed libraries. The plan says what it assumed.",
)  # fmt: skip
R104 = Rule(
    "R104", "mode-changed", Severity.WARNING, "the engine would not run the asked CUDA-graph mode",
    "Model, attention backend, parallel layout or connectors change the mode on the way to the workers, most often "
    "with no more than a log line. The plan follows the engine.",
    "vllm/config/vllm.py: VllmConfig.__post_init__; vllm/config/compilation.py: resolve_cudagraph_mode_and_sizes",
)  # fmt: skip
R105 = Rule(
    "R105", "model-runner-v1", Severity.WARNING, "the engine would use Model Runner V1",
    "V1 sizes all graphs from one list, rounded to multiples of 1 + K, and has no graphs of its own for most drafters.",
    "vllm/config/vllm.py: VllmConfig.use_v2_model_runner",
)  # fmt: skip
R106 = Rule(
    "R106", "new-fields-on-v1", Severity.ERROR, "the new capture fields need Model Runner V2, and this spec gets V1",
    "The message says why the engine falls back to V1.", _SPLIT,
)  # fmt: skip
R107 = Rule(
    "R107", "drafts-unknown", Severity.ERROR, "K cannot be resolved",
    "The number of drafts is neither written nor in the draft model's config.",
)  # fmt: skip
R108 = Rule(
    "R108", "method-unknown", Severity.ERROR, "the engine has no such speculative method",
    "Methods are the engine's own; the help names the nearest.",
    "vllm/config/speculative.py: SpeculativeMethod",
)  # fmt: skip
R109 = Rule(
    "R109", "drafts-not-multiple", Severity.ERROR, "K does not fit the draft model's modules",
    "A K above the number of MTP modules must be a multiple of it, because the modules are used in turn.",
    "vllm/config/speculative.py: SpeculativeConfig.__post_init__",
)  # fmt: skip
R110 = Rule(
    "R110", "block-size-as-drafts", Severity.WARNING, "K equals the drafter's block size",
    "A block of DFlash holds the bonus token and K drafts; K = block size asks for one token more than was trained.",
    "reports on DFlash block-16 checkpoints",
)  # fmt: skip
R111 = Rule(
    "R111", "draft-config-unknown", Severity.NOTE, "the draft model's config is not known",
    "Its graphs are planned from the method alone. A config tells the number of modules, the block layout and the "
    "attention backend.",
)  # fmt: skip
R112 = Rule(
    "R112", "backend-ambiguous", Severity.NOTE, "the attention backend depends on what is installed",
    "Both outcomes are shown; the launch pins the one that the plan assumed.",
    "vllm/platforms/cuda.py: _get_backend_priorities",
)  # fmt: skip
R113 = Rule(
    "R113", "draft-eager-ignored", Severity.WARNING, "the engine ignores this draft setting",
    "Model Runner V2 never reads `speculative.enforce_eager`: the drafter's graphs are captured all the same.",
    "vllm/v1/worker/gpu/spec_decode",
)  # fmt: skip
R114 = Rule(
    "R114", "hardware-count", Severity.ERROR, "the parallel layout does not fit the number of GPUs",
    "One launch needs tensor x pipeline x data parallel ranks; `hardware.count` says how many GPUs there are.",
)  # fmt: skip
R115 = Rule(
    "R115", "plan-incomplete", Severity.WARNING, "a setting may change the plan in a way that is not modelled",
    "The plan is marked incomplete: what it says holds only as far as that setting does not matter.",
)  # fmt: skip
R116 = Rule(
    "R116", "lowering-impossible", Severity.ERROR, "the engine cannot be started with this lowering",
    "`native` needs an engine that has the five fields, `extension` one with the worker extension hook. The graphs or "
    "the token list travel in one argument of the command line, which has a greatest length. Remedies work inside the "
    "engine's workers, where `extension` alone comes.",
)  # fmt: skip

R117 = Rule(
    "R117", "not-available-yet", Severity.ERROR, "the field has no effect yet",
    "The spec's format has the field, and this version of servespec cannot do what it asks for. A budget or a remedy "
    "that is silently ignored would be worse than none.",
)  # fmt: skip

R118 = Rule(
    "R118", "no-container", Severity.ERROR, "the launch cannot be a container of the official image",
    "`plan --emit compose` and `dockerfile` build on the image that vLLM releases for GPUs. The host publishes the "
    "server's port at an address, and model folders are mounted where the command looks for them.",
)  # fmt: skip
R119 = Rule(
    "R119", "curve-cannot-choose", Severity.ERROR, "the curve does not say which K serves most",
    "Tiers by a curve need the time of a step with each candidate K at every batch of 1 to `scheduler.max_num_seqs` "
    "requests. What was not timed is not guessed.",
)  # fmt: skip
R120 = Rule(
    "R120", "specialised-decode-impossible", Severity.ERROR, "the engine's specialised decode does not run this spec",
    "`decode_backend: latency_specialized` asks for an executor that the engine has for a few models, each for certain "
    "GPUs, parallelism and types. For any other model it changes nothing; for one of those, the engine ends at "
    "start-up where something is missing.",
    "vllm/models/deepseek_v41/nvidia/specialized_decode/__init__.py: unsupported; "
    "vllm/models/kimi_k3/nvidia/specialized_decode/runtime/__init__.py: unsupported",
)  # fmt: skip

R121 = Rule(
    "R121", "layer-partition", Severity.ERROR, "the layers cannot be shared out to the pipeline stages like that",
    "`VLLM_PP_LAYER_PARTITION` names the layers of every stage: as many numbers as `parallel.pipeline_parallel_size`, "
    "which add up to the layers of the model.",
    "vllm/distributed/utils.py: get_pp_indices",
)  # fmt: skip
R122 = Rule(
    "R122", "no-knee", Severity.ERROR, "the curve does not say from when on to verify adaptively",
    "`load_aware: {from_requests: auto}` takes the size from which steps per second fall most steeply, of the upper "
    "half of the timed sizes to `scheduler.max_num_seqs`. A fall counts beyond the noise of both sizes: where no step "
    "takes longer, verifying fewer drafts makes none faster.",
)  # fmt: skip
R123 = Rule(
    "R123", "config-value", Severity.WARNING, "a value in the model's config.json cannot be meant",
    "A size is a whole number that is not negative, and a type one that the engine computes with. What the plan cannot "
    "read is unknown to it; the engine may stop at the same value.",
)  # fmt: skip
R124 = Rule(
    "R124", "no-architecture", Severity.ERROR, "the model's config.json does not say what the model is",
    "The engine takes the class of a model from `architectures`, or from `model_type`. A config with neither is not "
    "that of a model.",
    "vllm/model_executor/models/registry.py: _ModelRegistry.inspect_model_cls",
)  # fmt: skip
R125 = Rule(
    "R125", "architecture-unknown", Severity.WARNING, "the engine has no class for this model's architecture",
    "Where Transformers knows the model, the engine may run it through that; where a plug-in registers the class, "
    "through the plug-in. The plan is made from the config's sizes alone.",
    "vllm/model_executor/models/registry.py: _ModelRegistry.inspect_model_cls",
)  # fmt: skip
R126 = Rule(
    "R126", "no-prediction", Severity.ERROR, "what is served under such traffic cannot be predicted",
    "Steps are played one by one by the times of a curve: of decodes with each K, and of steps with prompts in them as "
    "wide as a step can be. What was not timed is not guessed.",
)  # fmt: skip
P101 = Rule(
    "P101", "decode-eager", Severity.WARNING, "some decode batches replay no graph",
    "Batches above the reach of the decode graphs run eagerly, several times slower where the host is the bottleneck. "
    "The help gives the one change that covers them.", _SPLIT,
)  # fmt: skip
P102 = Rule(
    "P102", "draft-eager", Severity.WARNING, "some draft steps replay no graph",
    "The drafter's graphs end before the largest batch; wider batches draft eagerly. A drafter that follows a step of "
    "adaptive verification takes it as a mixed step, which PIECEWISE graphs alone serve.", _SPLIT,
)  # fmt: skip
P103 = Rule(
    "P103", "cap-truncated", Severity.WARNING, "the engine truncates the legacy maximum",
    "A bare `max_cudagraph_capture_size` uses the 8- and 16-strided list only: the entries that decode batches land on "
    "are not added, and a maximum off the stride is cut.",
    "vllm/config/vllm.py: VllmConfig._set_cudagraph_sizes",
)  # fmt: skip
P104 = Rule(
    "P104", "dead-graphs", Severity.NOTE, "some graphs can never be replayed",
    "They are captured and hold memory, but no batch dispatches to them. Defaults are not changed for it.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates",
)  # fmt: skip
P105 = Rule(
    "P105", "step-budget-below-decode", Severity.WARNING, "the step budget is below the widest decode batch",
    "max_num_seqs requests at 1 + K tokens need more than max_num_batched_tokens, so a step never holds them all.",
    "vllm/v1/core/sched/scheduler.py",
)  # fmt: skip
P106 = Rule(
    "P106", "prefill-eager", Severity.NOTE, "some steps with a prefill replay no graph",
    "Steps wider than the largest PIECEWISE graph run eagerly.", _SPLIT,
)  # fmt: skip
P107 = Rule(
    "P107", "prefill-cap-below-budget", Severity.WARNING, "the prefill cap is below the step budget",
    "Steps between the two run eagerly. The largest prompts and mixed steps are most often there.", _SPLIT,
)  # fmt: skip
P108 = Rule(
    "P108", "prefill-cap-limits-drafts", Severity.WARNING, "the prefill cap limits the drafter's graphs",
    "Block drafters capture up to (widest captured step) // q requests, so a small prefill cap cuts their reach.",
    _SPLIT + ", Drafter coupling",
)  # fmt: skip
P109 = Rule(
    "P109", "wide-prefill-under-data-parallel", Severity.WARNING, "wide prefill graphs are slower here",
    "With data parallelism and a gather-based mixture of experts every rank computes the others' padded rows: 14 to "
    "20 % slower above 8,192 tokens, measured on Qwen3.8-Flash-Next DP4+EP.", _SPLIT + ", Appendix A (e)",
)  # fmt: skip
P110 = Rule(
    "P110", "large-fixed-k", Severity.WARNING, "a large fixed K loses at many requests",
    "Verification is compute-bound on n * (1 + K) tokens: at 512 requests and more a fixed K of 7 was no faster than "
    "no speculation, and K of 1 or 3 was fastest. Tiers or adaptive verification follow the load.",
    _SPLIT + ", Appendix B",
)  # fmt: skip
P111 = Rule(
    "P111", "padding-crosses-token-step", Severity.NOTE, "padding crosses a power-of-two token count",
    "Kernels step at power-of-two token counts (+3.8 ms from 2,048 to 2,176 tokens on DeepSeek-V4). A decode batch "
    "padded across one pays for it.", _SPLIT + ", Appendix A (b)",
)  # fmt: skip
P112 = Rule(
    "P112", "padded-indexer-rows", Severity.NOTE, "each padded request costs the sparse indexer about 87 µs",
    "Padded rows are scheduled onto one multiprocessor, in series, on compute capability 10.x.",
    _SPLIT + ", Appendix A (a)",
)  # fmt: skip
P113 = Rule(
    "P113", "gaps-in-verification-sizes", Severity.WARNING, "adaptive verification has gaps between its sizes",
    "The verify budget is chosen among the captured sizes: a list with nothing between 64 and 128 tokens lowered "
    "acceptance by 10.6 % at 16 requests.", _SPLIT + ", Limitations",
)  # fmt: skip
P114 = Rule(
    "P114", "full-wider-than-piecewise", Severity.NOTE, "a FULL graph is wider than the widest PIECEWISE one",
    "The engine sizes its persistent output buffer by the first capture, the widest PIECEWISE size; a wider FULL graph "
    "would overrun it. Only a lowering that gives kinds their own sizes can produce this; the extension captures the "
    "widest FULL graph before any other.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: ModelCudaGraphManager.store_capture_output",
)  # fmt: skip
P115 = Rule(
    "P115", "interleaved-tiers-lose-graphs", Severity.WARNING, "the engine misses graphs of interleaved tiers",
    "The engine looks only at the next captured token count, whichever tier it belongs to; a batch whose own tier has "
    "a larger graph falls back to PIECEWISE.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.dispatch",
)  # fmt: skip
P116 = Rule(
    "P116", "lowering-differs", Severity.NOTE, "one list cannot express what the fields ask for",
    "Under the legacy lowering every runner rounds the same list, so some runners capture other sizes than asked.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates",
)  # fmt: skip
P117 = Rule(
    "P117", "requests-per-rank", Severity.NOTE, "request counts are per data-parallel replica",
    "max_num_seqs bounds each replica; the whole deployment runs data_parallel_size times as many requests.",
)  # fmt: skip
P118 = Rule(
    "P118", "tiers-mixed-steps", Severity.NOTE, "decode steps at a tier edge mix query lengths",
    "Under dynamic speculation the drafts of a step were chosen for the batch before it; where the tier changes or a "
    "request joins, the step is not uniform and takes no FULL graph.",
    "vllm/v1/core/sched/scheduler.py: Scheduler.schedule",
)  # fmt: skip
P119 = Rule(
    "P119", "unreachable-tiers", Severity.WARNING, "a tier starts above max_num_seqs",
    "No batch is that large, so the tier never applies.",
)  # fmt: skip
# P120 and P121 belonged to what is not there any more; the codes are not used again.
P122 = Rule(
    "P122", "no-decode-graph", Severity.WARNING, "the mode asks for decode graphs and none is left",
    "A legacy list whose entries all stand for more than max_num_seqs requests gives no decode graph: every decode "
    "batch runs on PIECEWISE graphs or eagerly.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager._init_candidates",
)  # fmt: skip
P123 = Rule(
    "P123", "list-changes-memory", Severity.NOTE, "the engine sizes more than graphs by the list it is given",
    "The list of a plan is not the engine's own, and buffers follow its maximum. FlashAttention's split accumulators "
    "are the large ones: the engine's profile run skips attention, so that its memory budget does not hold them. "
    "Which reader follows how is in the engine facts, Readers of the token list.",
    "vllm/v1/attention/backends/flash_attn.py: FlashAttentionMetadataBuilder.build",
)  # fmt: skip
P124 = Rule(
    "P124", "list-changes-kernels", Severity.NOTE, "the engine chooses kernels by the list it is given",
    "Steps that replay no graph also run other kernels than under the engine's own list, because their choice follows "
    "the list. They compute the same. Which reader follows how is in the engine facts, Readers of the token list.",
    "vllm/v1/attention/backends/triton_attn.py: TritonAttentionMetadataBuilder.__init__",
)  # fmt: skip
P125 = Rule(
    "P125", "list-changes-start-up", Severity.NOTE, "the engine prepares more than graphs by the list it is given",
    "Before capture the engine compiles, tunes or plans for entries of the list. Which reader follows how is in the "
    "engine facts, Readers of the token list.",
    "vllm/model_executor/warmup/kernel_warmup.py: kernel_warmup",
)  # fmt: skip
P126 = Rule(
    "P126", "does-not-fit", Severity.ERROR, "the plan does not fit the device's memory",
    "Even at the low ends of all error bars, weights, the peak of a step and what the engine keeps leave less than the "
    "engine starts with: a KV cache for one request at max_model_len and one block. The help names the smallest change "
    "of each field that makes it fit.",
    "vllm/v1/core/kv_cache_planning.py: _check_enough_kv_cache_memory",
)  # fmt: skip
P127 = Rule(
    "P127", "may-not-fit", Severity.WARNING, "the plan fits only within the error bars",
    "At the high ends of the error bars the engine would not start, or the device would run out of memory. "
    "`servespec plan --details` shows every line with its bar.",
    "vllm/v1/core/kv_cache_planning.py: _check_enough_kv_cache_memory",
)  # fmt: skip
P128 = Rule(
    "P128", "remedy-without-effect", Severity.NOTE, "a remedy has nothing to do",
    "The plan captures nothing that it would change. The message says what is missing.",
)  # fmt: skip
P129 = Rule(
    "P129", "graphs-above-budget", Severity.ERROR, "the graphs take more than the spec lets them",
    "Even at the low ends of the error bars they take more than `memory.max_cudagraph_memory`. Sizes that the spec "
    "writes are held; the help names those that a search without them finds.",
)  # fmt: skip
P130 = Rule(
    "P130", "graphs-may-exceed-budget", Severity.WARNING, "the graphs may take more than the spec lets them",
    "By the middle of the error bars they take more than `memory.max_cudagraph_memory`, though not by the low ends, or "
    "no formula counts them. The bound is held against the plan alone; the engine knows none.",
)  # fmt: skip
P131 = Rule(
    "P131", "graphs-chosen-within-bound", Severity.NOTE, "graph sizes were chosen to stay within a bound",
    "`memory.max_cudagraph_memory` bounds graph memory, and the spec leaves sizes open: they are the widest whose "
    "ledger, by the middle of its error bars, stays within it. Memory, The best graphs within a bound, has the order "
    "of what is better. The message says what was given up and the help what to write to make the choice explicit.",
)  # fmt: skip
P132 = Rule(
    "P132", "may-run-out-under-load", Severity.WARNING, "the engine starts and may run out of memory under load",
    "A sparse indexer scores every compressed position of the context for each row of a step. FULL graphs hold those "
    "logits; every other step, such as one with a prefill in it, allocates them anew, and the engine's budget knows "
    "of a tensor of fixed size alone. They come out of what the budget leaves of the device and of what the engine "
    "sets aside for graphs beyond what those take. A lower decode budget makes the second smaller: it can raise this "
    "risk.", "vllm/model_executor/layers/sparse_attn_indexer.py: sparse_attn_indexer",
)  # fmt: skip
P136 = Rule(
    "P136", "measurement-of-another-launch", Severity.ERROR, "the record is of a launch with other arguments",
    "`--measured` takes the memory of a launch in place of formulas. That holds for the same engine, device, models "
    "and arguments, whatever the memory budget, the address and the graphs are.",
)  # fmt: skip
P137 = Rule(
    "P137", "graphs-not-measured", Severity.NOTE, "the graphs of the plan are not those of the record",
    "What captures take depends on all graphs of a manager, so measured figures are taken for the very same graphs "
    "alone. Weights, the peak of a step and what else is held are taken from the record all the same.",
)  # fmt: skip
P138 = Rule(
    "P138", "graphs-that-gain-nothing", Severity.WARNING, "graphs were no faster than eager when they were timed",
    "Wide steps keep the device busy for longer than the host needs to start their kernels, so that a graph saves "
    "nothing there. The size below which it did is the largest whose 95 % interval of eager over graph lies above 1.",
)  # fmt: skip
P140 = Rule(
    "P140", "more-requests-than-states", Severity.ERROR, "the cache has fewer blocks than requests with a state",
    "A recurrent layer keeps the state of a request in a block of the KV cache, and decode graphs are captured for "
    "`scheduler.max_num_seqs` requests. With fewer blocks the engine ends at start-up.",
    "vllm/config/compilation.py: CompilationConfig.resolve_cudagraph_mode_and_sizes",
)  # fmt: skip
P141 = Rule(
    "P141", "maybe-more-requests-than-states", Severity.WARNING, "the cache may have fewer blocks than requests",
    "At the low end of the KV cache's error bar there are fewer blocks than requests whose states they hold, and the "
    "engine would end at start-up.",
    "vllm/config/compilation.py: CompilationConfig.resolve_cudagraph_mode_and_sizes",
)  # fmt: skip
P142 = Rule(
    "P142", "tiers-by-curve", Severity.NOTE, "a curve chose the tiers",
    "Each tier has the K that serves the most tokens a second by the curve, n * tokens per step / seconds of a step, "
    "or one that is within the tolerance of it and spares a tier. The help writes the same tiers by hand.",
)  # fmt: skip
P143 = Rule(
    "P143", "curve-of-another-engine", Severity.ERROR, "the curve is of steps that this launch does not run",
    "The time of a step depends on device, models, parallelism, backend and the types of weights and cache. Limits, "
    "graphs and K may differ: those are what a curve is read for.",
)  # fmt: skip
P144 = Rule(
    "P144", "curve-of-another-version", Severity.WARNING, "the curve was measured with another version of the engine",
    "The tiers are still ones that can be served; that they are the best ones was measured elsewhere.",
)  # fmt: skip
P145 = Rule(
    "P145", "curve-of-other-graphs", Severity.WARNING, "the curve was measured with other decode graphs",
    "A step without a FULL graph takes longer, so that a curve whose engine captured less, or more, than this plan may "
    "prefer another K at those sizes.",
)  # fmt: skip
P146 = Rule(
    "P146", "verification-grid-chosen", Severity.NOTE, "another grid than the dense one is captured for verification",
    "Adaptive verification picks its budget of drafts from the captured sizes. Sizes beyond what a step can hold serve "
    "nothing; gaps below that make it verify fewer drafts than it could. The dense grid is the default.",
    "vllm/v1/worker/gpu/spec_decode/adaptive_verification.py: build_cost_tables_from_curves",
)  # fmt: skip
P147 = Rule(
    "P147", "never-adaptive", Severity.WARNING, "verification never turns adaptive",
    "`load_aware.from_requests` lies above `scheduler.max_num_seqs`, so that every batch verifies all its drafts, and "
    "graphs of adaptive verification serve nothing.",
)  # fmt: skip
P148 = Rule(
    "P148", "specialised-decode", Severity.NOTE, "decode steps run on the engine's specialised executor",
    "It runs FULL graphs of pure decodes up to a number of tokens; wider decodes, prefills and mixed steps run the "
    "stock layers. What it gains was published for one request.",
    "vllm/models/deepseek_v41/nvidia/specialized_decode/__init__.py",
)  # fmt: skip
P149 = Rule(
    "P149", "all-drafts-in-every-tier", Severity.NOTE, "the drafter does not draft less in a lower tier",
    "The released engine runs one pass of a block drafter for all K, and one graph of all modules of a multi-module "
    "MTP drafter, and blanks what the tier did not ask for. Each is captured whole for K, so that servespec cannot "
    "shorten it safely; with K = 0 a block drafter only follows the target.",
    "vllm/v1/worker/gpu/spec_decode/dflash/speculator.py: DFlashSpeculator.propose",
)  # fmt: skip
P150 = Rule(
    "P150", "peak-of-compiling", Severity.NOTE, "the measured peak is of a launch that compiled",
    "While an engine compiles, kernels are tried on tensors of their own, an embedding among them, so that its profile "
    "run peaks higher than with the code in its cache: 1,792 against 928 MiB for a dense 8B model on one H200. A "
    "record of the first launch leaves that much less to the KV cache than one of the second.",
)  # fmt: skip
P153 = Rule(
    "P153", "curve-with-gaps", Severity.WARNING, "batches lie far from any size that was timed",
    "Between two timed sizes the time of a step is taken to follow a power law. Far apart they hide where it turns "
    "from flat to linear, which is what tiers and the knee are read from.",
)  # fmt: skip
P154 = Rule(
    "P154", "knee-by-curve", Severity.NOTE, "a curve chose from where on verification is adaptive",
    "Of the upper half of the timed sizes it is the one from which steps per second fall most steeply, for each factor "
    "between two sizes, and by more than their noise: from there on the device computes every further draft.",
    "load-aware compact verification capacity",
)  # fmt: skip
P155 = Rule(
    "P155", "drafter-not-compiled", Severity.WARNING, "the drafter can have no PIECEWISE graphs",
    "PIECEWISE graphs are of the pieces into which torch.compile cuts a model, or of a breakable capture. Some of the "
    "engine's MTP drafters have no class that it compiles. The engine runs such a drafter at every PIECEWISE size, "
    "counts that as captured and dispatches to it, and nothing was captured: draft step 0 runs eagerly. The plan has "
    "no such graphs; FULL graphs of draft step 0 are captured as planned.",
    "vllm/v1/worker/gpu/cudagraph_utils.py: CudaGraphManager.run_pw_graph",
)  # fmt: skip
P156 = Rule(
    "P156", "depth-of-no-tier", Severity.WARNING, "K is above that of every tier",
    "With tiers the engine drafts what the tier of the batch says; `num_speculative_tokens` is only their upper bound. "
    "Above the deepest of them it gains no draft, while every request has KV slots set aside for it, and the sizes of "
    "the engine's own list follow it. A drafter that makes all drafts in one pass makes those too.",
    "vllm/v1/core/sched/scheduler.py: Scheduler.schedule, dynamic_sd_lookup; "
    "vllm/config/vllm.py: VllmConfig.num_lookahead_tokens",
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Rule))
