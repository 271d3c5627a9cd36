"""The spec file, version 1: what may be written, as pydantic models.

A field that is absent stays None here; resolution fills it in and remembers who did.  The docstring under a field is
its published description: meaning, unit, default per GPU, and where the rule comes from; ``field_docs`` reads them,
and only when something is published, because reading them at every start would cost more than checking a spec.

Sections marked *open* take every field of the engine's own config classes too, by the engine's names; those are
checked against the generated table of the named engine version, not here.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Strict, Tag

from servespec.schema.coercion import (
    ByteSize,
    Count,
    FileNames,
    Fraction,
    Port,
    PositiveCount,
    RequestsOrAuto,
    Share,
    TokenBudget,
    compact_alone,
    device_name,
    empty_if_null,
)

CudaGraphModeName = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
PerformanceModeName = Literal["balanced", "interactivity", "throughput"]
Remedy = bool | Literal["auto"]


class Section(BaseModel):
    """A part of the spec. Unknown keys are errors; nothing is coerced beyond what a field says."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    engine_configs: ClassVar[tuple[str, ...]] = ()
    """Names of the engine's config classes whose fields an open section also takes."""


class OpenSection(Section):
    """A section that also takes the fields of the engine's config classes, by the engine's names."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, defer_build=True)

    @property
    def engine_fields(self) -> dict[str, Any]:
        """The keys that belong to the engine's config classes, as written."""
        return dict(self.model_extra or {})


class ModelSection(OpenSection):
    """The target model: what the engine loads. Open to the engine's ModelConfig, LoadConfig and MultiModalConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("ModelConfig", "LoadConfig", "MultiModalConfig")

    id: str = Field(min_length=1, examples=["Qwen/Qwen3-30B-A3B", "./models/my-model"])
    """Name on the model hub, or a folder that holds a `config.json`. A relative folder is taken from the spec's own
    folder."""
    revision: str | None = Field(default=None, examples=["main"])
    """Branch, tag or commit on the hub. Needed, as a commit, where `trust_remote_code` is on."""
    dtype: str | None = Field(default=None, examples=["bfloat16"])
    """Weight and activation type: `auto`, `bfloat16`, `float16`, `float32`. Default: `auto`, the checkpoint's own."""
    quantization: str | None = Field(default=None, examples=["fp8"])
    """Quantization method by the engine's name. Default: what the checkpoint says."""
    max_model_len: Count | None = Field(default=None, examples=[32768, "32k"])
    """Longest context of one request, in tokens. Default: what the model's config gives."""
    load_format: str | None = Field(default=None, examples=["safetensors"])
    """How weights are read: `auto`, `safetensors`, `dummy`, ... Default: `auto`."""
    trust_remote_code: bool = False
    """Run Python code that the model repository carries. Takes effect only with `--allow-code`."""
    hf_overrides: dict[str, Any] = Field(default_factory=dict, examples=[{"max_position_embeddings": 65536}])
    """Values laid over the model's `config.json`; the plan sees them too."""
    enforce_eager: bool = False
    """Run without CUDA graphs and without torch.compile."""
    served_model_name: str | None = Field(default=None, examples=["my-model"])
    """Name under which the API offers the model. Default: the id as written."""


class DeviceFile(Section):
    """A device described by a file that `servespec doctor --device-file` wrote on that machine."""

    device: str = Field(min_length=1, examples=["device.json"])
    """Path of the file, relative to the spec's own folder."""


class HardwareSection(Section):
    """The machine to plan for. Planning never looks at the machine it runs on."""

    gpu: Annotated[str | DeviceFile, BeforeValidator(device_name)] = Field(examples=["h200", "gb200", "cpu"])
    """A name of the device table (docs/reference/devices.md), `cpu`, or `{device: FILE}`."""
    count: PositiveCount = Field(default=1, examples=[8])
    """GPUs of one launch, over all its nodes."""


class ParallelSection(OpenSection):
    """How the model is spread over GPUs. Open to the engine's ParallelConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("ParallelConfig",)

    tensor_parallel_size: PositiveCount = Field(default=1, examples=[8])
    """Ranks that share each layer."""
    pipeline_parallel_size: PositiveCount = Field(default=1, examples=[2])
    """Stages that share the layers; speculators live on the last one."""
    data_parallel_size: PositiveCount = Field(default=1, examples=[4])
    """Engine replicas. `max_num_seqs` and every request count of a plan are per replica."""
    enable_expert_parallel: bool = False
    """Spread experts over ranks instead of slicing each."""


class AttentionSection(OpenSection):
    """Attention. Open to the engine's AttentionConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("AttentionConfig",)

    backend: str | None = Field(default=None, examples=["FLASH_ATTN"])
    """Attention backend by the engine's name, or `auto`. The launch always pins the one the plan assumed."""


class SchedulerSection(OpenSection):
    """Limits of one step. Open to the engine's SchedulerConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("SchedulerConfig",)

    max_num_seqs: PositiveCount | None = Field(default=None, examples=[256])
    """Most requests in one step, per data-parallel replica, in requests. Default: 1,024 on GPUs of 70 GiB and more
    (A100 and GB10 excepted), else 256."""
    max_num_batched_tokens: PositiveCount | None = Field(default=None, examples=[8192, "8k"])
    """Most tokens in one step, in tokens. Default: 16,384 on GPUs of 160 GiB and more, 8,192 from 70 GiB, else
    2,048."""


class TierSpec(Section):
    """One tier of dynamic speculation."""

    up_to: PositiveCount | None = Field(default=None, examples=[64])
    """Largest batch of this tier, in requests; the last tier has none."""
    num_speculative_tokens: Annotated[Count, Field(ge=0, examples=[3])]
    """Drafts of each request in such a batch, in tokens; 0 drafts nothing."""


class CurveTiers(Section):
    """Tiers of dynamic speculation chosen by measured step times."""

    from_curve: FileNames = Field(examples=["curve.json"])
    """File that `servespec profile` wrote, or several of one engine; from the spec's own folder."""
    acceptance_rates: Annotated[tuple[Share, ...], Strict(False), Field(min_length=1)] | None = Field(
        default=None, examples=[[0.8, 0.6, 0.4]]
    )
    """Share of drafts of which position 1, 2, ... was accepted, one for each draft; `servespec acceptance` reads them
    off a running server. Default: the engine's own, where it accepts synthetically."""
    acceptance_length: Annotated[float, Field(ge=1)] | None = Field(default=None, examples=[2.5])
    """Tokens of one request in one step with K drafts, the bonus token included: in place of the rates, each draft
    accepted with the same chance."""
    candidates: Annotated[tuple[Count, ...], Strict(False), Field(min_length=1)] | None = Field(
        default=None, examples=[[0, 1, 3, 7]]
    )
    """The K to choose from. Default: every K of the curve up to `num_speculative_tokens`."""
    tolerance: Fraction = Field(default=0.02, examples=["2%"])
    """How far below the best K a tier may be at any size, so that tiers are few. Default: 2 %, and the curve's noise on
    top."""


def _form_of_tiers(value: Any) -> str:
    """One tier that is not in a list is still meant as tiers."""
    is_one_tier = isinstance(value, dict) and "up_to" in value
    return "curve" if isinstance(value, dict | CurveTiers) and not is_one_tier else "tiers"


Tiers = Annotated[
    Annotated[tuple[TierSpec, ...], Strict(False), Field(min_length=1), Tag("tiers")]
    | Annotated[CurveTiers, Tag("curve")],
    Discriminator(_form_of_tiers),
]


class LoadAwareSection(Section):
    """Verification that follows the load: all drafts at few requests, the likeliest ones at many."""

    from_requests: RequestsOrAuto = Field(examples=[64, "auto"])
    """Batches of fewer requests verify all K drafts on uniform graphs; from here on the engine verifies the drafts that
    are worth their time, until the load has fallen by an eighth below it. `auto` is the knee of the curve."""
    from_curve: FileNames | None = Field(default=None, examples=["curve.json"])
    """For `auto`: file that `servespec profile` wrote, or several of one engine; from the spec's own folder."""
    verification: Annotated[Literal["compact"], BeforeValidator(compact_alone)] = "compact"
    """How fewer drafts are verified: `compact` batches of varying query lengths."""


class SpeculativeSection(OpenSection):
    """Speculative decoding. Open to the engine's SpeculativeConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("SpeculativeConfig",)

    method: str | None = Field(default=None, examples=["eagle3", "mtp", "dspark", "dflash", "ngram"])
    """Drafting method by the engine's name. Default: what the engine infers from the draft model."""
    model: str | None = Field(default=None, examples=["Tengyunw/qwen3_30b_moe_eagle3"])
    """Draft model: a hub name or a folder. Methods that draft with the target's own weights need none."""
    num_speculative_tokens: PositiveCount | None = Field(default=None, examples=[3])
    """K, the drafts of one request in one step, in tokens. A verified request has q = 1 + K tokens.
    Default: what the draft model's config says; needed for methods without one."""
    dynamic: Tiers | None = None
    """Tiers of batch sizes with their own K, ascending; the last has no `up_to`. Or `{from_curve: FILE}`: the tiers
    that serve most tokens by step times measured on the GPU. The engine's own notation is
    `num_speculative_tokens_per_batch_size`."""
    enable_adaptive_verification: bool = False
    """Verify fewer drafts where load is high. Target decode then captures one FULL grid in tokens."""
    load_aware: LoadAwareSection | None = None
    """Adaptive verification at many requests, and exactly K drafts at few, under the extension. Default: off."""
    draft_sample_method: Literal["greedy", "probabilistic"] | None = None
    """How drafts are sampled; `probabilistic` keeps the drafter's logits. Default: `greedy`."""

    @property
    def verifies_adaptively(self) -> bool:
        """At some load at least."""
        return self.enable_adaptive_verification or self.load_aware is not None

    @property
    def written_tiers(self) -> tuple[TierSpec, ...]:
        """The tiers that the spec itself has."""
        return self.dynamic if isinstance(self.dynamic, tuple) else ()

    @property
    def curve_tiers(self) -> CurveTiers | None:
        return self.dynamic if isinstance(self.dynamic, CurveTiers) else None

    @property
    def curve_files(self) -> tuple[str, tuple[str, ...]] | None:
        """Which field names a curve, and its files; None where none does."""
        if self.curve_tiers is not None:
            return "dynamic", self.curve_tiers.from_curve
        asked = self.load_aware
        if asked is not None and asked.from_requests == "auto" and asked.from_curve is not None:
            return "load_aware", asked.from_curve
        return None


class LoraSection(OpenSection):
    """LoRA adapters. Open to the engine's LoRAConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("LoRAConfig",)

    max_loras: PositiveCount = Field(default=1, examples=[4])
    """Adapters in one step. Every target graph is captured without and with adapters."""
    specialize_active_lora: bool = False
    """Capture a graph for each power of two of active adapters."""
    cudagraph_specialize_lora: bool = True
    """Capture the case without adapters apart from the case with them."""


class RemediesSection(Section):
    """Memory that captures need not hold, under the worker extension. `auto`: on where the lowering is `extension`
    anyway and the remedy was measured on these architectures, of models and GPU, and its graphs held against eager;
    else off, and off where there is more than one rank or LoRA."""

    weak_aux_outputs: Remedy = "auto"
    """Release auxiliary hidden states that breakable piecewise captures keep alive. Source:
    vllm/compilation/breakable_cudagraph.py."""
    one_capture_stream: Remedy = "auto"
    """Capture target and drafter on one stream, so that the drafter reuses the target's free blocks. `auto`: on for
    `Qwen3ForCausalLM` with `LlamaForCausalLMEagle3` on compute capability 9.0 with vLLM 0.33.0, `FLASH_ATTN`, one rank
    and no LoRA, else off. Source: vllm/v1/worker/gpu/cudagraph_utils.py."""
    stepwise_draft_logits: Remedy = "auto"
    """Compute DSpark's draft logits step by step."""
    indexer_row_chunks: Remedy = "auto"
    """Compute sparse-indexer logits in row chunks."""
    kv_from_measurement: Remedy = "auto"
    """Size the KV cache from memory that an earlier start measured over its whole initialisation. Source:
    vllm/v1/worker/startup_plan.py."""


CaptureSizes = Annotated[tuple[PositiveCount, ...], Strict(False)]


class CompilationSection(OpenSection):
    """CUDA graphs. Five fields in their own units, two legacy ones, and the engine's CompilationConfig.

    A cap uses the default grid up to it; a list chooses the sizes; both: the list must fit within the cap; `[]`
    disables the kind. Source: vLLM pull request "separate prefill/decode graph sizes".
    """

    engine_configs: ClassVar[tuple[str, ...]] = ("CompilationConfig",)

    cudagraph_mode: CudaGraphModeName | None = None
    """Which kinds of graphs are captured. Default: FULL_AND_PIECEWISE, as far as model and backend allow."""
    max_prefill_cudagraph_capture_tokens: PositiveCount | None = Field(default=None, examples=[8192])
    """Cap of PIECEWISE graphs, in tokens: prefill, mixed steps, and decode that no FULL graph covers. Default:
    min(8192, max_num_batched_tokens) on compute capability 10.x, the engine's own maximum elsewhere (512 on H200)."""
    prefill_cudagraph_capture_token_sizes: CaptureSizes | None = Field(default=None, examples=[[1, 8, 64, 512]])
    """The exact token counts that get a PIECEWISE graph; `[]` disables the kind. Default: the prefill grid up to the
    cap on compute capability 10.x, the engine's own list elsewhere."""
    max_decode_cudagraph_capture_requests: PositiveCount | None = Field(default=None, examples=[256])
    """Cap of FULL graphs for uniform decode, in requests; n requests run n * (1 + K) tokens. Default: max_num_seqs
    on compute capability 10.x, the engine's own reach elsewhere (512 // (1 + K) tokens' worth)."""
    decode_cudagraph_capture_request_sizes: CaptureSizes | None = Field(default=None, examples=[[1, 2, 4, 8]])
    """The exact request counts that get a decode graph; `[]` disables the kind. Default: the decode grid up to the
    cap on compute capability 10.x, the engine's own counts elsewhere."""
    max_decode_cudagraph_capture_tokens: TokenBudget | None = Field(default=None, examples=[4096, "unlimited"])
    """Budget of one decode graph, in tokens: captured only while n * q fits. `unlimited` sets none. Default: 4096 on
    compute capability 10.x, none elsewhere. Adaptive verification is exempt."""
    cudagraph_capture_sizes: CaptureSizes | None = Field(
        default=None, examples=[[1, 2, 4, 8]], json_schema_extra={"deprecated": True}
    )
    """Legacy, in tokens: one list for prefill and decode together. Never beside the five fields above."""
    max_cudagraph_capture_size: PositiveCount | None = Field(
        default=None, examples=[512], json_schema_extra={"deprecated": True}
    )
    """Legacy, in tokens: one cap for prefill and decode together. Never beside the five fields above."""
    adaptive_verification_grid: Literal["dense", "reachable", "sparse"] | None = None
    """Sizes of adaptive verification, in tokens, under the extension. `dense`: 1, 2, 4, 8, four a doubling to 1024,
    every 128 to 4096, every 256, to the decode cap times q. `reachable`: the same, and none beyond the first that
    covers what a step can verify. `sparse`: powers of two, and n * q for the request counts n of the decode grid, as
    far as `reachable`. Default: `dense`. Source: vLLM pull request "separate prefill/decode graph sizes", follow-up
    7."""
    breakable_cudagraph: bool | Literal["auto"] = "auto"
    """Piecewise graphs without torch.compile (VLLM_USE_BREAKABLE_CUDAGRAPH). Default: on for the architectures that
    the engine lists."""


class MemorySection(OpenSection):
    """Memory budgets. Open to the engine's CacheConfig, OffloadConfig and MambaConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("CacheConfig", "OffloadConfig", "MambaConfig")

    gpu_memory_utilization: Fraction | None = Field(default=None, examples=[0.92, "92%"])
    """Share of the device's memory that the engine may take. Default: 0.92."""
    kv_cache_memory_bytes: ByteSize | None = Field(default=None, examples=["40GiB"])
    """Size of the KV cache on one device. Default: what the budget leaves."""
    kv_cache_dtype: str | None = Field(default=None, examples=["fp8"])
    """Type of cached keys and values: `auto`, `bfloat16`, `fp8`, ... Default: `auto`, the model's own."""
    block_size: PositiveCount | None = Field(default=None, examples=[64])
    """Tokens of one KV block. Default: chosen by the attention backend."""
    max_cudagraph_memory: ByteSize | None = Field(default=None, examples=["8GiB"])
    """Most memory that all graphs may take on one device, by the plan's ledger; sizes that `compilation` leaves open
    are the widest within it. Default: no bound."""
    estimate_cudagraph_memory: bool | None = None
    """Whether the engine subtracts its own graph estimate from the KV cache
    (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS). Default: on."""


class KernelSection(OpenSection):
    """Kernel choices. Open to the engine's KernelConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("KernelConfig",)


class KvTransferSection(OpenSection):
    """KV transfer between engines. Open to the engine's KVTransferConfig."""

    engine_configs: ClassVar[tuple[str, ...]] = ("KVTransferConfig",)


class EngineSection(Section):
    """Which engine runs the spec, and what is passed to it untouched."""

    name: Literal["vllm"] = "vllm"
    """The engine."""
    version: str | None = Field(default=None, examples=["0.33.0"])
    """Version to plan for. Default: the installed one, else the newest supported."""
    lowering: Literal["auto", "native", "extension", "legacy", "none"] = "auto"
    """How the plan reaches the engine. `auto`: native where the engine has the five fields, else the extension where
    one list cannot express the plan, else the legacy list."""
    model_runner: Literal["auto", "v1", "v2"] = "auto"
    """Model runner generation (VLLM_USE_V2_MODEL_RUNNER). The five fields need v2."""
    args: dict[str, Any] = Field(default_factory=dict, examples=[{"enable-log-requests": True}])
    """Further flags of the engine, by long name without dashes; none that changes the plan."""
    env: dict[str, str | int | float | bool] = Field(default_factory=dict, examples=[{"VLLM_LOGGING_LEVEL": "DEBUG"}])
    """Further environment variables of the engine; none that changes the plan."""


class ServeSection(Section):
    """The server."""

    host: str = Field(default="127.0.0.1", examples=["0.0.0.0"])  # noqa: S104 - of a choice that is the user's
    """Address that the server binds. Default: loopback."""
    port: Port = Field(default=8000, examples=[8080])
    """TCP port."""
    ready_timeout_seconds: PositiveCount = Field(default=1800, examples=[3600])
    """How long a start may take, in seconds."""


_OPTIONAL = BeforeValidator(empty_if_null)
"""Of a section: absent and null both mean that nothing is written."""


class ServingSpec(Section):
    """One serving spec: a model, a machine, and how the first is served on the second."""

    servespec: Literal[1]
    """Version of the spec format."""
    extends: str | Annotated[tuple[str, ...], Strict(False)] | None = Field(default=None, examples=["base.yaml"])
    """Spec files, from this one's folder, whose values stand where this one says nothing; of several a later one stands
    over an earlier one. Mappings are put together key by key, lists are not. Default: none."""
    model: ModelSection
    hardware: HardwareSection
    parallel: Annotated[ParallelSection, _OPTIONAL] = Field(default_factory=ParallelSection)
    attention: Annotated[AttentionSection, _OPTIONAL] = Field(default_factory=AttentionSection)
    scheduler: Annotated[SchedulerSection, _OPTIONAL] = Field(default_factory=SchedulerSection)
    speculative: SpeculativeSection | None = None
    lora: LoraSection | None = None
    performance_mode: PerformanceModeName | None = None
    """`interactivity` captures every small size, `throughput` doubles the default limits. Default: `balanced`."""
    optimization_level: Annotated[int, Field(ge=0, le=3)] | None = Field(default=None, examples=[1])
    """The engine's -O level: 0 no graphs, 1 PIECEWISE, 2 and 3 FULL_AND_PIECEWISE. Default: 2."""
    remedies: Annotated[RemediesSection, _OPTIONAL] = Field(default_factory=RemediesSection)
    compilation: Annotated[CompilationSection, _OPTIONAL] = Field(default_factory=CompilationSection)
    memory: Annotated[MemorySection, _OPTIONAL] = Field(default_factory=MemorySection)
    kernel: Annotated[KernelSection, _OPTIONAL] = Field(default_factory=KernelSection)
    kv_transfer: KvTransferSection | None = None
    engine: Annotated[EngineSection, _OPTIONAL] = Field(default_factory=EngineSection)
    serve: Annotated[ServeSection, _OPTIONAL] = Field(default_factory=ServeSection)


NESTED_SECTIONS: tuple[tuple[str, type[Section]], ...] = (
    ("hardware.gpu", DeviceFile),
    ("speculative.dynamic[]", TierSpec),
    ("speculative.dynamic", CurveTiers),
    ("speculative.load_aware", LoadAwareSection),
)
"""Models that stand inside a field, by its path."""
