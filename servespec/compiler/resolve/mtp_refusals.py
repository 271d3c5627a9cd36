"""Models that the engine does not draft for by MTP, or not with that many drafts."""

from collections.abc import Iterator
from typing import Final

from servespec.compiler.facts.mtp_layers import WITHOUT_MTP_LAYERS
from servespec.compiler.resolve.drafting import Drafting
from servespec.compiler.resolve.request import ResolveRequest
from servespec.compiler.resolve.step import Refusal, TypedField

_POST_INIT: Final = "vllm/config/speculative.py: SpeculativeConfig.__post_init__"
_ONE_STEP: Final = "RadioMBartPrefixForCausalLM"


def mtp_refusals(request: ResolveRequest, drafting: Drafting) -> Iterator[Refusal]:
    if drafting.method.value != "mtp":
        return
    target, k = request.target.traits, drafting.num_speculative_tokens.value
    if target.model_type in WITHOUT_MTP_LAYERS.value:
        because = f"the checkpoints of `{target.model_type}` have DSpark stages and no MTP layers"
        typed = (TypedField("speculative", "method", "dspark"),)
        yield Refusal("speculative.method", because, _POST_INIT, help="write {}", typed=typed)
    if _ONE_STEP in target.architectures and k != 1:
        because = f"`{_ONE_STEP}` has one trained MTP step, and K is `{k}`"
        typed = (TypedField("speculative", "num_speculative_tokens", 1),)
        yield Refusal("speculative.num_speculative_tokens", because, _POST_INIT, help="write {}", typed=typed)
