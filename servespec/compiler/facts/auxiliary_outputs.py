"""Which speculative methods have the target hand its auxiliary hidden states to the drafter."""

from typing import Final

from servespec.provenance import Sourced

AUXILIARY_OUTPUT_METHODS: Final = Sourced(
    frozenset({"eagle3", "dflash", "dspark", "extract_hidden_states"}),
    "methods",
    "vllm",
    "0.33.0",
    "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
    'return spec_config.method in ("dflash", "dspark", "extract_hidden_states")',
    "EAGLE-3 unless its draft's eagle_config says otherwise",
)
