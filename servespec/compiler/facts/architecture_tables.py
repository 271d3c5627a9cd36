"""Which architectures the engine knows as hybrid, attention-free, multimodal, pooling or generative.

Read from the engine's registry and its model classes; a contract test derives the sets again from the
unpacked engine.  An architecture of both kinds counts as generative.  A version's set is the older one and what
came since.
"""

# ruff: noqa: SIM905 - one name a line would be seven hundred lines
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from servespec.provenance import Sourced

_REGISTRY = "vllm/model_executor/models/registry.py"
_INTERFACES = "vllm/model_executor/models/interfaces.py"
_CONVERTOR = "vllm/transformers_utils/model_arch_config_convertor.py"

_HYBRID = frozenset(
    """
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
    ColBERTLfm2Model ColQwen3_5 FalconH1ForCausalLM Glm5NextForCausalLM Glm5NextForConditionalGeneration
    GraniteMoeHybridForCausalLM InternS2MobiusForConditionalGeneration
    InternS2PreviewForConditionalGeneration JambaForCausalLM JambaForSequenceClassification
    KimiK3ForConditionalGeneration KimiLinearForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM
    Lfm2VlForConditionalGeneration MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
    NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
    NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 OlmoHybridForCausalLM
    Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM
    Qwen3_5MoeForConditionalGeneration Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration
    Zamba2ForCausalLM
    """.split()
)
_HYBRID_SINCE_0_33 = frozenset(
    """
    AliceAIForCausalLM ClefFlashForJointSchema MiniCPMOcrForConditionalGeneration
    """.split()
)
_ATTENTION_FREE = frozenset(
    """
    FalconMambaForCausalLM Mamba2ForCausalLM MambaForCausalLM Terratorch
    """.split()
)
_MULTIMODAL = frozenset(
    """
    AriaForConditionalGeneration AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration
    BailingMoeV3VLForConditionalGeneration BeeForConditionalGeneration Blip2ForConditionalGeneration
    CLIPModel ClefOmniForJointSchema Cohere2VisionForConditionalGeneration
    CohereAsrForConditionalGeneration CohereCompassForConditionalGeneration ColModernVBertForRetrieval
    ColPaliForRetrieval ColQwen3 ColQwen3_5 Cosmos3EdgeForConditionalGeneration
    Cosmos3ForConditionalGeneration DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM DeepseekV41ForCausalLM
    DeepseekV4ForConditionalGeneration DeepseekVLV2ForCausalLM DiffusionGemmaForBlockDiffusion
    Dots3NoteForCausalLM DotsOCRForCausalLM Eagle2_5_VLForConditionalGeneration EmbeddingGemma2Model
    Emu3ForConditionalGeneration Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration
    Exaone4_5_MTP FireRedASR2ForConditionalGeneration FunASRForConditionalGeneration
    FunAudioChatForConditionalGeneration GLM4VForCausalLM Gemma3ForConditionalGeneration
    Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration
    Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration Glm5NextForConditionalGeneration
    GlmAsrForConditionalGeneration GlmOcrForConditionalGeneration Granite4VisionForConditionalGeneration
    GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration H2OVLChatModel
    HCXVisionV2ForCausalLM HfMoondream HunYuanVLForConditionalGeneration Idefics3ForConditionalGeneration
    InklingForConditionalGeneration InternS1ForConditionalGeneration InternS1ProForConditionalGeneration
    InternS2MobiusForConditionalGeneration InternS2MobiusMTP InternS2PreviewForConditionalGeneration
    InternVLChatModel InternVLForConditionalGeneration IsaacForConditionalGeneration JinaVLForRanking
    KananaVForConditionalGeneration KeyeForConditionalGeneration KeyeVL1_5ForConditionalGeneration
    KimiK25ForConditionalGeneration KimiK3ForConditionalGeneration KimiVLForConditionalGeneration
    Lfm2VlForConditionalGeneration LightOnOCRForConditionalGeneration Llama4ForConditionalGeneration
    LlamaNemotronVLForSequenceClassification LlamaNemotronVLModel Llama_Nemotron_Nano_VL
    LlavaForConditionalGeneration LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration
    LlavaOnevision2ForConditionalGeneration LlavaOnevisionForConditionalGeneration MiDashengLMModel
    MiMoV2OmniForCausalLM MiMoV2OmniMTPModel MiniCPMO MiniCPMV MiniCPMV4_6ForConditionalGeneration
    MiniCPMV4_7ForConditionalGeneration MiniMaxM3SparseForConditionalGeneration
    Mistral3ForConditionalGeneration Molmo2ForConditionalGeneration MolmoForCausalLM Moondream3ForCausalLM
    MoonshotKimiaForCausalLM MossAudioModel MossTranscribeDiarizeForConditionalGeneration
    MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration NVLM_D NemotronH_Nano_Omni_Reasoning_V3
    NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3
    NemotronParseForConditionalGeneration OpenCUAForConditionalGeneration
    OpenPanguVLForConditionalGeneration OpenVLAForActionPrediction OpsColQwen3Model Ovis Ovis2_5
    Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM PaddleOCRVLForConditionalGeneration
    PaliGemmaForConditionalGeneration Phi3VForCausalLM Phi4ForCausalLMV Phi4MMForCausalLM
    PixtralForConditionalGeneration QianfanOCRForConditionalGeneration Qwen2AudioForConditionalGeneration
    Qwen2VLForConditionalGeneration Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel
    Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration
    Qwen3ASRForcedAlignerForTokenClassification Qwen3ASRRealtimeGeneration
    Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
    Qwen3VLMoeForConditionalGeneration Qwen3VLNemotronEmbedModel Qwen3_5ForConditionalGeneration
    Qwen3_5MTP Qwen3_5MoeForConditionalGeneration Qwen3_5MoeMTP Qwen4ExpForConditionalGeneration
    RForConditionalGeneration SiglipModel SkyworkR1VChatModel SmolVLMForConditionalGeneration
    Step3VLForConditionalGeneration Step3p7ForConditionalGeneration StepVLForConditionalGeneration
    Terratorch TransformersMultiModalEmbeddingModel TransformersMultiModalForCausalLM
    TransformersMultiModalForSequenceClassification TransformersMultiModalMoEForCausalLM UltravoxModel
    UnlimitedOCRForCausalLM VibeVoiceAsrForConditionalGeneration VoxtralForConditionalGeneration
    VoxtralRealtimeGeneration WhisperForConditionalGeneration
    """.split()
)
_MULTIMODAL_SINCE_0_33 = frozenset(
    """
    Alpamayo2Super ClefFlashForJointSchema ColUltraVBertForRetrieval MiniCPMOcrForConditionalGeneration
    ModernVBertModel MuseSparkForConditionalGeneration RadioMBartPrefixForCausalLM
    Step5ForConditionalGeneration Step5MTP
    """.split()
)
_POOLING = frozenset(
    """
    BertForMaskedLM BertForSequenceClassification BertForTokenClassification BertModel
    BertSpladeSparseEmbeddingModel BgeM3EmbeddingModel CLIPModel ClefOmniForJointSchema
    ColBERTJinaRobertaModel ColBERTLfm2Model ColBERTModernBertModel ColModernVBertForRetrieval
    ColPaliForRetrieval ColQwen3 ColQwen3_5 DeepseekV3BidirectionalModel EmbeddingGemma2Model
    GPT2ForSequenceClassification Gemma2Model Gemma3TextModel GteModel GteNewForSequenceClassification
    GteNewModel HF_ColBERT InternLM2ForRewardModel JambaForSequenceClassification JinaEmbeddingsV5Model
    JinaForRanking JinaVLForRanking LlamaBidirectionalForSequenceClassification LlamaBidirectionalModel
    LlamaModel LlamaNemotronVLForSequenceClassification LlamaNemotronVLModel MistralModel
    ModernBertForSequenceClassification ModernBertForTokenClassification ModernBertModel NomicBertModel
    OpenAIPrivacyFilterForTokenClassification OpsColQwen3Model Qwen2ForProcessRewardModel
    Qwen2ForRewardModel Qwen2Model Qwen3ASRForcedAlignerForTokenClassification Qwen3VLNemotronEmbedModel
    RobertaForMaskedLM RobertaForSequenceClassification RobertaForTokenClassification RobertaModel
    SiglipModel Terratorch VoyageQwen3BidirectionalEmbedModel XLMRobertaForSequenceClassification
    XLMRobertaForTokenClassification XLMRobertaModel
    """.split()
)
_POOLING_SINCE_0_33 = frozenset(
    """
    ClefFlashForJointSchema ColUltraVBertForRetrieval D3ForSequenceClassification Lfm2BidirectionalModel
    ModernVBertModel
    """.split()
)
_GENERATIVE = frozenset(
    """
    AXK1ForCausalLM AfmoeForCausalLM ApertusForCausalLM AriaForConditionalGeneration
    AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration BailingMoeForCausalLM
    BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM
    BailingMoeV3VLForConditionalGeneration BeeForConditionalGeneration Blip2ForConditionalGeneration
    BloomForCausalLM ChatGLMForConditionalGeneration ChatGLMModel Cohere2ForCausalLM Cohere2MoeForCausalLM
    Cohere2VisionForConditionalGeneration CohereAsrForConditionalGeneration
    CohereCompassForConditionalGeneration CohereForCausalLM Cosmos3EdgeForConditionalGeneration
    Cosmos3ForConditionalGeneration DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM
    DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM
    DeepseekV3ForCausalLM DeepseekV41ForCausalLM DeepseekV4ForCausalLM DeepseekV4ForConditionalGeneration
    DeepseekVLV2ForCausalLM DiffusionGemmaForBlockDiffusion Dots3NoteForCausalLM DotsOCRForCausalLM
    Eagle2_5_VLForConditionalGeneration Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM
    Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM Exaone4_5_ForConditionalGeneration
    ExaoneForCausalLM ExaoneMoEForCausalLM ExaoneMoeForCausalLM FalconForCausalLM FalconH1ForCausalLM
    FalconMambaForCausalLM FireRedASR2ForConditionalGeneration FunASRForConditionalGeneration
    FunAudioChatForConditionalGeneration GLM4VForCausalLM GPT2LMHeadModel GPTJForCausalLM
    Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3nForCausalLM
    Gemma3nForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM
    Glm4MoeLiteForCausalLM Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
    Glm5NextForCausalLM Glm5NextForConditionalGeneration GlmAsrForConditionalGeneration
    GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration GptOssForCausalLM
    Granite4VisionForConditionalGeneration GraniteForCausalLM GraniteMoeForCausalLM
    GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM GraniteSWAForCausalLM
    GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration H2OVLChatModel
    HCXVisionV2ForCausalLM HYV3ForCausalLM HYV4ForCausalLM HfMoondream HrmTextForCausalLM
    HyperCLOVAXForCausalLM IQuestCoderForCausalLM IQuestLoopCoderForCausalLM
    Idefics3ForConditionalGeneration InklingForCausalLM InklingForConditionalGeneration
    InternLM2ForCausalLM InternLM3ForCausalLM InternS1ForConditionalGeneration
    InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration
    InternS2PreviewForConditionalGeneration InternVLChatModel InternVLForConditionalGeneration
    IsaacForConditionalGeneration JambaForCausalLM K2HorizonForCausalLM KananaVForConditionalGeneration
    KeyeForConditionalGeneration KeyeVL1_5ForConditionalGeneration KimiK25ForConditionalGeneration
    KimiK3ForConditionalGeneration KimiLinearForCausalLM KimiVLForConditionalGeneration LLaMAForCausalLM
    LagunaForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration
    LightOnOCRForConditionalGeneration Llama4ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM
    Llama_Nemotron_Nano_VL LlavaForConditionalGeneration LlavaNextForConditionalGeneration
    LlavaNextVideoForConditionalGeneration LlavaOnevision2ForConditionalGeneration
    LlavaOnevisionForConditionalGeneration LongcatFlashForCausalLM LongcatFlashNgramForCausalLM
    Mamba2ForCausalLM MambaForCausalLM MiDashengLMModel MiMoForCausalLM MiMoV2FlashForCausalLM
    MiMoV2ForCausalLM MiMoV2OmniForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMO MiniCPMV
    MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration MiniMaxM2ForCausalLM
    MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration Ministral3ForCausalLM
    Mistral3ForConditionalGeneration MistralForCausalLM MistralLarge3ForCausalLM MixtralForCausalLM
    Molmo2ForConditionalGeneration MolmoForCausalLM Moondream3ForCausalLM MoonshotKimiaForCausalLM
    MossAudioModel MossTranscribeDiarizeForConditionalGeneration MuseGlimmerForCausalLM
    MuseGlimmerForConditionalGeneration NVLM_D NemotronForCausalLM NemotronHForCausalLM
    NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
    NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 NemotronParseForConditionalGeneration
    OPTForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM OpenCUAForConditionalGeneration
    OpenPanguVLForConditionalGeneration OpenVLAForActionPrediction OrionForCausalLM Ovis Ovis2_5
    Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM PaddleOCRVLForConditionalGeneration
    PaliGemmaForConditionalGeneration PanguEmbeddedForCausalLM PanguProMoEV2ForCausalLM
    PanguUltraMoEForCausalLM Param2MoEForCausalLM Phi3ForCausalLM Phi3VForCausalLM Phi4ForCausalLMV
    Phi4MMForCausalLM PhiMoEForCausalLM PixtralForConditionalGeneration Plamo3ForCausalLM
    QianfanOCRForConditionalGeneration Qwen2AudioForConditionalGeneration Qwen2ForCausalLM
    Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration Qwen2_5OmniForConditionalGeneration
    Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration
    Qwen3ASRRealtimeGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
    Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration Qwen4ExpForCausalLM
    Qwen4ExpForConditionalGeneration RForConditionalGeneration Rnj1ForCausalLM SarvamMLAForCausalLM
    SarvamMoEForCausalLM SkyworkR1VChatModel SmolVLMForConditionalGeneration SolarForCausalLM
    StableLmForCausalLM Step1ForCausalLM Step3TextForCausalLM Step3VLForConditionalGeneration
    Step3p5ForCausalLM Step3p7ForConditionalGeneration StepVLForConditionalGeneration TeleChat2ForCausalLM
    TeleChat3ForCausalLM TeleFLMForCausalLM UltravoxModel UnlimitedOCRForCausalLM
    VoxtralForConditionalGeneration VoxtralRealtimeGeneration WhisperForConditionalGeneration
    Zamba2ForCausalLM
    """.split()
)
_GENERATIVE_SINCE_0_33 = frozenset(
    """
    AliceAIForCausalLM Alpamayo2Super BeamForCausalLM DomynEdgeForCausalLM DoryForCausalLM
    FlintForCausalLM MiniCPMOcrForConditionalGeneration MuseSparkForConditionalGeneration
    RadioMBartPrefixForCausalLM Step5ForCausalLM Step5ForConditionalGeneration
    """.split()
)
_OTHERS = frozenset(
    """
    ArceeForCausalLM BailingMoeV25MTPModel BailingMoeV3MTPModel CwmForCausalLM DFlash2DraftModel
    DFlashDraftModel DFlashLagunaForCausalLM DFlashMuseGlimmerAssistantModel DSparkDraftModel
    DSparkV41DraftModel DeepSeekMTPModel DeepSeekV4MTPModel DeepseekV32MTPModel Dots3NoteMTPModel
    Eagle3DeepseekV2ForCausalLM Eagle3DeepseekV3ForCausalLM Eagle3LlamaForCausalLM
    Eagle3MiniMaxM2ForCausalLM Eagle3Qwen2_5vlForCausalLM Eagle3Qwen3ForCausalLM Eagle3Qwen3vlForCausalLM
    EagleCohereForCausalLM EagleDeepSeekMTPModel EagleLlama4ForCausalLM EagleLlamaForCausalLM
    EagleMiniCPMForCausalLM EagleMistralForCausalLM EagleMistralLarge3ForCausalLM
    Emu3ForConditionalGeneration ErnieMTPModel Exaone4_5_MTP ExaoneMoeMTP ExtractHiddenStatesModel
    FlexOlmoForCausalLM GPTBigCodeForCausalLM GPTNeoXForCausalLM Gemma4DSparkModel Gemma4MTPModel
    Glm4MoeLiteMTPModel Glm4MoeMTPModel Glm5NextMTPModel GlmForCausalLM GlmOcrMTPModel HYV3MTPModel
    HYV4MTPModel HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM HunYuanVLForConditionalGeneration
    InklingMTPModel InternS2MobiusMTP Jais2ForCausalLM K3DSparkModel KimiK3MTPModel LiLiCorrDraftModel
    LlamaForCausalLMEagle3 LongCatFlashMTPModel MellumForCausalLM MiMoMTPModel MiMoV2MTPModel
    MiMoV2OmniMTPModel MiniMaxM3MTP MuseGlimmerAssistantModel NanbeigeForCausalLM NemotronHMTPModel
    Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OpenPanguMTPModel PEagleDraftModel
    PeagleLlamaForCausalLM PeagleQwen3ForCausalLM PhiForCausalLM Qwen3DSparkModel Qwen3NextMTP
    Qwen3OmniDSparkModel Qwen3_5MTP Qwen3_5MoeMTP Qwen4ExpMTP SeedOssForCausalLM SmolLM3ForCausalLM
    Starcoder2ForCausalLM Step3p5MTP TransformersEmbeddingModel TransformersForCausalLM
    TransformersForSequenceClassification TransformersMoEEmbeddingModel TransformersMoEForCausalLM
    TransformersMoEForSequenceClassification TransformersMultiModalEmbeddingModel
    TransformersMultiModalForCausalLM TransformersMultiModalForSequenceClassification
    TransformersMultiModalMoEForCausalLM VaultGemmaForCausalLM VibeVoiceAsrForConditionalGeneration
    """.split()
)
_OTHERS_SINCE_0_33 = frozenset(
    """
    DFlash2BeamDraftModel DFlashQwen3XPressModel Kolibri1ForCausalLM MuseSparkDSparkModel
    ParseAuxMTPModel Qwen3XPressModel Step5MTP TransformersForMTP TransformersMoEForMTP
    """.split()
)
_OTHERS_UNTIL_0_33 = frozenset(
    """
    MedusaModel
    """.split()
)
_MLA_MODEL_TYPES = frozenset(
    """
    axk1 bailing_hybrid bailing_hybrid_mtp bailing_hybrid_v3_mtp deepseek_mtp deepseek_v2 deepseek_v3
    deepseek_v32 deepseek_v4 deepseek_v41 dots3_note glm4_moe_lite glm4_moe_lite_mtp glm5_next
    glm5_next_text glm_moe_dsa hy_v4 hy_v4_mtp k3_dspark kimi_k2 kimi_linear longcat_flash pangu_ultra_moe
    pangu_ultra_moe_mtp
    """.split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureTables:
    """The sets of one engine version; ``mla_model_types`` holds model types and not architectures.

    ``others`` are registered and neither generate nor pool by themselves: drafters, and what Transformers runs.
    """

    hybrid: Sourced[frozenset[str]]
    attention_free: Sourced[frozenset[str]]
    multimodal: Sourced[frozenset[str]]
    pooling: Sourced[frozenset[str]]
    generative: Sourced[frozenset[str]]
    others: Sourced[frozenset[str]]
    mla_model_types: Sourced[frozenset[str]]

    def registers(self, architecture: str) -> bool:
        """Whether the engine has a class of that name."""
        return any(architecture in names.value for names in (self.generative, self.pooling, self.others))


def _set(version: str, names: frozenset[str], path: str, quote: str) -> Sourced[frozenset[str]]:
    return Sourced(names, "names", "vllm", version, path, quote)


_V0_33_0 = ArchitectureTables(
    hybrid=_set("0.33.0", _HYBRID | _HYBRID_SINCE_0_33, _INTERFACES, "class IsHybrid(Protocol):"),
    attention_free=_set("0.33.0", _ATTENTION_FREE, _INTERFACES, "class IsAttentionFree(Protocol):"),
    multimodal=_set(
        "0.33.0",
        _MULTIMODAL | _MULTIMODAL_SINCE_0_33,
        _INTERFACES,
        "class SupportsMultiModal(SupportsMultiModalEmbeddings, Protocol):",
    ),
    pooling=_set("0.33.0", _POOLING | _POOLING_SINCE_0_33, _REGISTRY, "_EMBEDDING_MODELS = {"),
    generative=_set("0.33.0", _GENERATIVE | _GENERATIVE_SINCE_0_33, _REGISTRY, "_TEXT_GENERATION_MODELS = {"),
    others=_set("0.33.0", _OTHERS | _OTHERS_SINCE_0_33, _REGISTRY, "_SPECULATIVE_DECODING_MODELS = {"),
    mla_model_types=_set("0.33.0", _MLA_MODEL_TYPES, _CONVERTOR, "def is_deepseek_mla(self) -> bool:"),
)
_V0_32_0 = ArchitectureTables(
    hybrid=_set("0.32.0", _HYBRID, _INTERFACES, "class IsHybrid(Protocol):"),
    attention_free=_set("0.32.0", _ATTENTION_FREE, _INTERFACES, "class IsAttentionFree(Protocol):"),
    multimodal=_set(
        "0.32.0", _MULTIMODAL, _INTERFACES, "class SupportsMultiModal(SupportsMultiModalEmbeddings, Protocol):"
    ),
    pooling=_set("0.32.0", _POOLING, _REGISTRY, "_EMBEDDING_MODELS = {"),
    generative=_set("0.32.0", _GENERATIVE, _REGISTRY, "_TEXT_GENERATION_MODELS = {"),
    others=_set("0.32.0", _OTHERS | _OTHERS_UNTIL_0_33, _REGISTRY, "_SPECULATIVE_DECODING_MODELS = {"),
    mla_model_types=_set("0.32.0", _MLA_MODEL_TYPES, _CONVERTOR, "def is_deepseek_mla(self) -> bool:"),
)

ARCHITECTURE_TABLES: Mapping[str, ArchitectureTables] = MappingProxyType({"0.33.0": _V0_33_0, "0.32.0": _V0_32_0})
