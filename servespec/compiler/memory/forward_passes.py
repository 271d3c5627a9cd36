"""The forward passes of a resolved spec: widths of the target's and the drafter's tensors on one rank."""

from dataclasses import replace
from typing import Any

from servespec.compiler.facts.graph_memory import DSPARK_LAYERS, GIVEN_RESIDUAL_METHODS
from servespec.compiler.facts.list_readers import split_accumulator_bytes
from servespec.compiler.facts.model_traits import ModelTraits
from servespec.compiler.graphs.managers import DrafterKind
from servespec.compiler.graphs.shape import Runner
from servespec.compiler.memory.auxiliary_states import aux_places
from servespec.compiler.memory.compressed_pass import CompressedPass
from servespec.compiler.memory.compressed_widths import compressed_pass, is_compressed
from servespec.compiler.memory.config_sizes import merged_config
from servespec.compiler.memory.expert_workspace import expert_workspace
from servespec.compiler.memory.forward_pass import ForwardPass
from servespec.compiler.memory.indexer_logits import indexer_row
from servespec.compiler.memory.model_pass import ContextScores
from servespec.compiler.memory.sparse_index import layers_with_index
from servespec.compiler.memory.split import split_of
from servespec.compiler.memory.stage import WHOLE_MODEL, Stage
from servespec.compiler.model import Model
from servespec.compiler.resolve.resolution import Resolution
from servespec.units import Tokens

_BF16_BYTES = 2
_FP32_BYTES = 4
_FP8_CAPABILITY = (9, 0)

ModelPass = ForwardPass | CompressedPass


def target_pass(resolution: Resolution, splits: int, stage: Stage = WHOLE_MODEL) -> ModelPass:
    """A stage of the target's forward pass, with the auxiliary hidden states that it makes."""
    target = resolution.request.target
    if is_compressed(target.traits):
        whole = compressed_pass(resolution, target)
        own = _own_layers(resolution, whole.layers, stage)
        return replace(
            whole,
            ratios=whole.ratios[own.start : own.stop],
            aux_layers=_own_aux(resolution, whole.layers, own),
            is_given_states=not stage.is_first,
            hands_on_states=not stage.is_last,
        )
    plain = _decoder_pass(resolution, Runner.TARGET, target, splits)
    own = _own_layers(resolution, plain.layers, stage)
    return replace(
        plain,
        layers=len(own),
        aux_layers=_own_aux(resolution, plain.layers, own),
        scores=_scores(resolution, own),
        is_given_residual=not stage.is_first,
        hands_on_residual=not stage.is_last,
    )


def _own_layers(resolution: Resolution, layers: int, stage: Stage) -> range:
    return stage.of(split_of(resolution.request.spec).layers(layers))


def _own_aux(resolution: Resolution, layers: int, own: range) -> tuple[int, ...]:
    """What is read after the last layer of a stage is the stage's, and counted from its first."""
    first = own.start + 1 if own.start else 0
    return tuple(place - own.start for place in aux_places(resolution, layers) if first <= place <= own.stop)


def _scores(resolution: Resolution, own: range) -> ContextScores | None:
    row = indexer_row(resolution)
    if row is None:
        return None
    has_index = layers_with_index(resolution.request.target, own.stop)
    return ContextScores(layers=frozenset(layer - own.start for layer in own if has_index[layer]), row=row)


def received(resolution: Resolution, stage: Stage) -> tuple[int, int]:
    """How many tensors of the step's width come from the stage before, and the bytes of a token in each.

    Auxiliary hidden states of every stage before come along.
    Source: vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py: reserve_aux_intermediate_tensor_slots.
    """
    whole = target_pass(resolution, splits=1)
    if stage.is_first or not whole.hidden:
        return 0, whole.hidden
    own = _own_layers(resolution, whole.layers, stage)
    earlier = sum(place <= own.start for place in aux_places(resolution, whole.layers))
    return whole.handed_on + earlier, whole.hidden


def draft_pass(resolution: Resolution, splits: int) -> ModelPass:
    """The drafter's; a drafter that is part of the target's checkpoint has the target's widths.

    Draft heads of the EAGLE family read the embedding beside the hidden state: compiled, in one tensor that their norms
    write; else in one that both are copied to, they stay to the end, and queries and keys are turned where they are.
    Sources: vllm/model_executor/models/llama_eagle3.py: LlamaModel.forward, LlamaDecoderLayer.forward;
    vllm/model_executor/layers/rotary_embedding/base.py: RotaryEmbedding.forward_cuda.
    """
    request = resolution.request
    model, is_block = request.draft or request.target, resolution.drafting.kind is DrafterKind.BLOCK
    is_own = request.draft is None or request.draft.config == request.target.config
    layers = _own_draft_layers(resolution) if is_own else model.traits.num_hidden_layers or 1
    if is_compressed(model.traits):
        whole = compressed_pass(resolution, model)
        return replace(whole, ratios=(0,) * layers, scores=None, forks_up_to=None, is_repeated=is_block)
    own = replace(_decoder_pass(resolution, Runner.DRAFTER, model, splits), layers=layers)
    if is_block:
        return own
    given = _reads_hidden_states(resolution)
    head = replace(own, first_operand=2 * own.hidden, is_given_residual=given)
    return head if own.is_compiled else replace(head, inputs=2 * own.hidden, query=0, key=0)


def _reads_hidden_states(resolution: Resolution) -> bool:
    """Whether the drafter's first residual is what it is called with, rather than the norm of that."""
    config = merged_config(resolution.request.draft or resolution.request.target)
    is_normed = bool(config.get("norm_before_residual"))
    return resolution.drafting.method.value in GIVEN_RESIDUAL_METHODS.value and not is_normed


def _own_draft_layers(resolution: Resolution) -> int:
    """Of a drafter in the target's own checkpoint."""
    target = resolution.request.target
    if resolution.drafting.method.value != "dspark":
        return target.draft_tokens or 1
    named = merged_config(target).get("n_mtp_layers")
    return named if isinstance(named, int) and named else DSPARK_LAYERS.value


def untold(model: Model) -> tuple[str, ...]:
    """Fields that the widths need and the config does not have; what follows from them is left out."""
    traits = model.traits
    needed = {
        "hidden_size": traits.hidden_size,
        "num_hidden_layers": traits.num_hidden_layers,
        "num_attention_heads": traits.num_attention_heads,
        "intermediate_size": traits.intermediate_size or traits.is_mixture_of_experts,
        "v_head_dim": traits.v_head_dim or traits.kv_lora_rank is None,
    }
    return tuple(name for name, value in needed.items() if not value)


def _decoder_pass(resolution: Resolution, runner: Runner, model: Model, splits: int) -> ForwardPass:
    traits, ranks = model.traits, resolution.request.spec.parallel.tensor_parallel_size
    hidden = _BF16_BYTES * (traits.hidden_size or 0)
    streams = merged_config(model).get("hc_mult")
    inner = 0 if traits.is_mixture_of_experts else _BF16_BYTES * (traits.intermediate_size or 0) // ranks
    return ForwardPass(
        layers=traits.num_hidden_layers or 1,
        aux_layers=(),
        hidden=hidden,
        stream=hidden * (streams if isinstance(streams, int) else 1),
        wide=2 * inner,
        gated=inner,
        router=_BF16_BYTES * (traits.num_experts or 0),
        experts=expert_workspace(resolution, model),
        sums_over_ranks=ranks > 1,
        is_compiled=runner in resolution.compiled,
        scale_group=_scale_group(resolution, model) if runner in resolution.compiled else 0,
        **_attention_widths(resolution, traits, splits),
    )


def _scale_group(resolution: Resolution, model: Model) -> int:
    """Elements that share a scale where the compiled model's matrices read FP8.

    On older devices the kernel reads bf16.
    Source: vllm/model_executor/layers/quantization/fp8.py: Fp8LinearMethod.__init__.
    """
    block = (model.traits.quantization_config or {}).get("weight_block_size")
    is_read = model.traits.quantization_method == "fp8" and resolution.device.compute_capability >= _FP8_CAPABILITY
    return int(block[0]) if isinstance(block, list) and block and is_read else 0


def _attention_widths(resolution: Resolution, traits: ModelTraits, splits: int) -> dict[str, Any]:
    ranks = resolution.request.spec.parallel.tensor_parallel_size
    heads = max(1, traits.num_attention_heads // ranks) if traits.num_attention_heads else 0
    kv_heads = max(1, (traits.num_key_value_heads or 0) // ranks) if heads else 0
    width = traits.head_size or 0
    if traits.is_mla:
        return _latent_widths(traits, heads, width)
    return {
        "projected": _BF16_BYTES * (heads + 2 * kv_heads) * width,
        "query": _BF16_BYTES * heads * width,
        "key": _BF16_BYTES * kv_heads * width,
        "output": _BF16_BYTES * heads * width,
        "accumulators": _accumulators(splits, heads, width),
    }


def _accumulators(splits: int, heads: int, width: int) -> tuple[int, ...]:
    """Log-sum-exps of the result, outputs of all splits, and their log-sum-exps, in the order of the call."""
    both = split_accumulator_bytes(splits=splits, heads=heads, tokens=Tokens(1), value_width=width)
    sums = both // (width + 1) if width else 0
    return (_FP32_BYTES * heads, both - sums, sums) if both else ()


def _latent_widths(traits: ModelTraits, heads: int, width: int) -> dict[str, Any]:
    """Plain MLA has latent queries and outputs in its operator only; what that hands on has the width of the values.

    Sources: vllm/model_executor/layers/mla.py: MultiHeadLatentAttentionWrapper.forward;
    vllm/model_executor/layers/attention/mla_attention.py: MLAAttention.forward, MLAAttention.forward_impl;
    vllm/models/deepseek_v32/attention.py: DeepseekV32Attention.forward.
    """
    latents = _BF16_BYTES * heads * (traits.kv_lora_rank or 0)
    query = (traits.qk_nope_head_dim or 0) + (traits.qk_rope_head_dim or 0)
    return {
        "projected": _BF16_BYTES * ((traits.q_lora_rank or 0) + width),
        "query": _BF16_BYTES * heads * (query if traits.qk_nope_head_dim else width),
        "key": _BF16_BYTES * width,
        "output": _BF16_BYTES * heads * (traits.v_head_dim or 0),
        "latents": (latents, latents) if latents else (),
    }
