"""Numbers that decide graph sizes: the engine's ceilings and bounds, and the defaults and costs of the split grids."""

from typing import Final, TypeVar

from servespec.compiler.facts.engine_file import in_engine
from servespec.provenance import Sourced
from servespec.units import Bytes, Tokens

T = TypeVar("T")

SPLIT_REQUEST: Final = "vLLM pull request 'separate prefill/decode graph sizes'"
"""The document that the five fields, their grids and defaults come from."""

_CONFIG = "vllm/config/vllm.py"


def _split(value: T, unit: str, where: str, quote: str, note: str = "") -> Sourced[T]:
    return Sourced(value, unit, SPLIT_REQUEST, "", where, quote, note)


_CEILING_QUOTE = "1024 if current_platform.is_device_capability_family(100) else 512"

WIDE_CEILING: Final = in_engine(Tokens(1024), "tokens", _CONFIG, _CEILING_QUOTE, "compute capability 10.x")
CEILING: Final = in_engine(Tokens(512), "tokens", _CONFIG, _CEILING_QUOTE, "every other GPU")

STRIDES: Final = in_engine((8, 16), "tokens", _CONFIG, "256, max_cudagraph_capture_size + 1, 16", "below and from 256")

LOGITS_CHUNK: Final = in_engine(
    Bytes(1 << 30),
    "bytes",
    "vllm/v1/worker/gpu/spec_decode/rejection_sampler.py",
    "MAX_CHUNK_BYTES = 2**30",
    "fp32 logits of one verification chunk",
)
LOGIT: Final = in_engine(
    Bytes(4), "bytes", "vllm/v1/worker/gpu/spec_decode/rejection_sampler.py", "_FP32_BYTES = 4", "one fp32 logit"
)

STATE_RECOVERY_ARCHITECTURES: Final = in_engine(
    ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration"),
    "architectures",
    _CONFIG,
    'kda_architectures = ( "KimiLinearForCausalLM", "KimiK3ForConditionalGeneration", )',
)

PREFILL_CAP: Final = _split(Tokens(8192), "tokens", "Configuration", "min(8192, max_num_batched_tokens)")
DECODE_BUDGET: Final = _split(Tokens(4096), "tokens", "Configuration", "4096 (interim default)")
DECODE_EPSILON: Final = _split(0.065, "share of step time", "Appendix A (c)", "with ε = 0.065")
PREFILL_EPSILON: Final = _split(0.035, "share of step time", "Appendix A (d)", "and ε = 0.035")
PREFILL_LINEAR_FROM: Final = _split(Tokens(4096), "tokens", "Appendix A (d)", "e_PW(t) = min(1, t / 4096)")
INTERACTIVITY_UP_TO: Final = in_engine(
    Tokens(32), "tokens", _CONFIG, "min(max_cudagraph_capture_size, 32)", "every smaller count is captured"
)
PIECEWISE_CAPTURE_SECONDS: Final = _split(
    1.0, "seconds", "Appendix A", "15–20 MiB graph object and about 1 s of capture", "GB200, one size"
)
FULL_CAPTURE_SECONDS: Final = _split(0.5, "seconds", "Appendix A", "10–16 MiB and 0.5 s", "GB200, one target graph")
SPARSE_VERIFICATION_TIME: Final = _split(
    0.0025, "share of engine time", "Appendix E, 7", "Powers of two plus n · (1 + K) measured within ±0.25% engine time"
)
GAP_ACCEPTANCE_LOSS: Final = _split(
    0.106, "share of acceptance", "Limitations", "5.9 → 4.2 at 16 requests (acceptance −10.6%)", "DeepSeek-V4.1, K = 5"
)
INDEXER_ROW_SECONDS: Final = _split(87e-6, "seconds", "Appendix A (a)", "~87 µs per padded request")


def ceiling_tokens(wide: bool) -> Tokens:
    """The engine's default maximum of its one list."""
    return (WIDE_CEILING if wide else CEILING).value
