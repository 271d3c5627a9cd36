"""What the words mean that fields of a spec take, by the field's path; one sentence or two each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_AUTO_MODES: Final = "What the engine does by itself."

VALUE_DOCS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "compilation.cudagraph_mode": {
            "NONE": "No CUDA graphs: every step runs eagerly.",
            "PIECEWISE": "Graphs of the pieces between attention calls, for any batch up to a size in tokens; "
            "attention itself runs eagerly.",
            "FULL": "One graph for a whole step, attention included, also for steps with prompts in them.",
            "FULL_DECODE_ONLY": "FULL graphs for uniform decode batches; all other steps run eagerly.",
            "FULL_AND_PIECEWISE": "FULL graphs for uniform decode batches, PIECEWISE ones for all other steps.",
        },
        "compilation.adaptive_verification_grid": {
            "dense": "Four sizes a doubling and more, to the decode cap times q: steps rarely verify fewer drafts.",
            "reachable": "As `dense`, without the sizes that no step of the engine's limit reaches: nothing is lost.",
            "sparse": "Powers of two and whole decodes as far as `reachable`: fewer graphs, and gaps between them.",
        },
        "speculative.load_aware.from_requests": {
            "auto": "The knee of the curve: where steps per second fall most steeply, in the upper half of the sizes "
            "to `scheduler.max_num_seqs`.",
        },
        "speculative.load_aware.verification": {
            "compact": "Requests of a step verify different numbers of drafts, and the step is as wide as their sum.",
        },
        "performance_mode": {
            "balanced": "The grids as they are.",
            "interactivity": "Every prefill size up to 32 tokens is captured too, so none of those is padded.",
            "throughput": "The engine's default limits of a step are twice as large.",
        },
        "speculative.method": {
            "eagle": "A draft head on the target's last hidden state; one step with the verified tokens, then K - 1 of "
            "one token each.",
            "eagle3": "As `eagle`, and the head also reads hidden states of inner layers of the target.",
            "mtp": "The target's own multi-token-prediction module; several of them draft in one block.",
            "dspark": "A block drafter: one pass makes all K drafts, then samples them one by one.",
            "dflash": "A block drafter by diffusion: one pass over 1 + K tokens makes all drafts.",
            "dflash2": "As `dflash`, its second form.",
            "ngram": "Drafts are looked up in the request's own text; no model, no graphs of its own.",
            "draft_model": "A whole small model drafts, token by token; the engine captures no graphs for it.",
            "extract_hidden_states": "Hands hidden states out and drafts nothing; no graphs of its own.",
        },
        "speculative.draft_sample_method": {
            "greedy": "The likeliest token is the draft; no logits are kept.",
            "probabilistic": "Drafts are sampled, and their logits kept for the rejection sampler.",
        },
        "engine.lowering": {
            "auto": "`native` where the engine has the five fields, else `extension` where no one list says the plan, "
            "else `legacy`, or `none` where stock does the same.",
            "native": "The engine's own five fields; no released engine has them yet.",
            "extension": "A worker extension puts the plan's graphs into the engine, and reports what was captured.",
            "legacy": "One list of token counts, the closest that one list comes; it touches nothing of the engine.",
            "none": "Nothing about graphs is passed but the mode.",
        },
        "engine.model_runner": {
            "auto": _AUTO_MODES,
            "v1": "The engine's older runner; the five capture fields need the newer.",
            "v2": "Model Runner V2, whose graph managers the plan describes.",
        },
        "compilation.breakable_cudagraph": {"auto": _AUTO_MODES},
        "remedies": {
            "auto": "On where the lowering is `extension` anyway and the remedy was measured and replayed on the "
            "architectures at hand, else off.",
        },
    }
)
"""Numbers, names of models and switches explain themselves; GPUs have their own table."""
