"""Judgement, by hand: which of the engine's settings change the plan, run code or are secret.

A name changes the plan when it can change which model runner runs, which CUDA graphs are captured, which
batches they cover, or a line of the memory ledger of more than a few MiB.  Every name of a supported version
stands in exactly one list; a name in none is unknown, and a plan that meets one says ``complete: false``.
A flag follows the field it sets; a field that holds a config class follows that class.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from engine_reading.field_type import TypeJson


@dataclass(frozen=True)
class Split:
    "Names that change the plan and names that do not."

    plan: frozenset[str]
    other: frozenset[str]

    def verdict(self, name: str) -> bool | None:
        if name in self.plan:
            return True
        return False if name in self.other else None


def _split(plan: str = "", other: str = "") -> Split:
    return Split(_names(plan), _names(other))


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FIELDS: dict[str, Split] = {
    "HiSparseConfig": _split("device_buffer_size eager_host_mirror"),
    # Split counts size the workspaces that decode graphs hold; tile sizes of flex attention size nothing.
    "AttentionConfig": _split(
        """backend minimax_m3_msa_decode_backend backend_per_kind flash_attn_version
        flash_attn_max_num_splits_for_cuda_graph tokenspeed_mla_min_split_kv
        tq_max_kv_splits_for_cuda_graph use_trtllm_attention disable_flashinfer_q_quantization
        mla_prefill_backend use_prefill_query_quantization trtllm_ragged_backend indexer_kv_dtype
        indexer_sparse_logits indexer_tp_shard_min_rows minimax_m3_indexer_cp hisparse_config
        use_non_causal sparse_mla_force_mqa sparse_mla_prefill_workspace_factor""",
        "flex_attn_block_m flex_attn_block_n flex_attn_q_block_size flex_attn_kv_block_size",
    ),
    "AuxOutputConfig": _split("enable_return_routed_experts max_bytes"),
    "CacheConfig": _split(
        """block_size gpu_memory_utilization cache_dtype is_attention_free num_gpu_blocks_override
        sliding_window kv_cache_dtype_skip_layers mamba_page_size_padded skip_page_size_padded
        mamba_block_size mamba_cache_dtype mamba_ssm_cache_dtype mamba_cache_mode
        enable_mamba_shared_prefix_checkpoint replayssm_buffer_len use_replayssm kv_sharing_fast_prefill
        swa_bounded_replay kv_cache_memory_bytes kv_offloading_size kv_offloading_backend
        prefix_match_unit enable_prefix_caching""",
        "prefix_caching_hash_algo prefix_cache_retention_interval",
    ),
    "PassConfig": _split(
        """fuse_norm_quant fuse_act_quant fuse_attn_quant eliminate_noops fuse_allreduce_rms
        enable_qk_norm_rope_fusion fuse_rope_kvcache_cat_mla fuse_act_padding fuse_mla_dual_rms_norm
        fuse_rope_kvcache fuse_qk_norm_rope_kvcache rope_kvcache_fusion_max_token_num
        fi_allreduce_fusion_max_size_mb"""
    ),
    "DynamicShapesConfig": _split("type", "evaluate_guards assume_32_bit_indexing"),
    "CompilationConfig": _split(
        """mode backend custom_ops ir_enable_torch_wrap splitting_ops compile_mm_encoder
        cudagraph_mm_encoder encoder_cudagraph_token_budgets
        encoder_cudagraph_max_vision_items_per_batch encoder_cudagraph_max_frames_per_batch
        cudagraph_decoder_replay decoder_replay_cudagraph_capture_sizes decoder_replay_trim_threshold
        compile_sizes compile_ranges_endpoints inductor_compile_config inductor_passes cudagraph_mode
        cudagraph_num_of_warmups cudagraph_capture_sizes cudagraph_copy_inputs cudagraph_specialize_lora
        use_inductor_graph_partition pass_config max_cudagraph_capture_size dynamic_shapes_config
        fast_moe_cold_start""",
        "debug_dump_path cache_dir compile_cache_save_format",
    ),
    "DeviceConfig": _split("device"),
    "DiffusionConfig": _split("canvas_length max_denoising_steps"),
    "EncoderCacheManagerConfig": _split("encoder_cache_manager_cls manager_config"),
    "ECTransferConfig": _split(
        """ec_connector ec_buffer_device ec_buffer_size ec_role ec_connector_extra_config
        ec_connector_module_path""",
        "engine_id ec_ip ec_port",
    ),
    "EngramConfig": _split("cpu_offload embedding_across_dp dp_shared_memory", "use_thp"),
    "FaultToleranceConfig": _split("", "engine_recovery_timeout_sec"),
    "IrOpPriorityConfig": _split("rms_norm fused_add_rms_norm gelu_and_mul_sparse"),
    "KernelConfig": _split(
        """ir_op_priority monokernel moe_backend sparse_indexer_topk_backend linear_backend
        linear_backend_per_quant""",
        """enable_flashinfer_autotune enable_rocm_segmented_attn_autotune enable_cutedsl_warmup
        enable_jit_warmup""",
    ),
    "KVEventsConfig": _split(
        "",
        "enable_kv_cache_events publisher endpoint replay_endpoint buffer_steps hwm max_queue_size topic",
    ),
    "KVTransferConfig": _split(
        """kv_connector kv_buffer_device kv_role kv_connector_extra_config kv_connector_module_path
        enable_permute_local_kv""",
        "engine_id kv_port kv_load_failure_policy",
    ),
    # A dummy or sharded format skips weight ties and changes what stands in memory.
    "LoadConfig": _split(
        "load_format device model_loader_extra_config",
        """download_dir safetensors_load_strategy safetensors_prefetch_num_threads
        safetensors_prefetch_block_size ignore_patterns use_tqdm_on_load pt_load_map_location""",
    ),
    "LoggingConfig": _split("", "log_level formatter configure_logging pylogging_config_file"),
    "LoRAConfig": _split(
        """max_lora_rank max_loras fully_sharded_loras lora_dtype target_modules default_mm_loras
        enable_tower_connector_lora specialize_active_lora enable_mixed_moe_lora_format
        enable_moe_shared_loras max_lora_cls_labels""",
        "max_cpu_loras",
    ),
    "MambaConfig": _split("backend ssu_algorithm", "enable_stochastic_rounding stochastic_rounding_philox_rounds"),
    "ModelConfig": _split(
        """model model_weights runner convert trust_remote_code dtype hf_config_path revision
        code_revision max_model_len spec_target_max_model_len quantization quantization_config
        enforce_eager disable_sliding_window enable_prompt_embeds config_format hf_overrides
        model_class_overrides enable_sleep_mode sleep_mode_backend sleep_mode_offload_cudagraph
        enable_cumem_allocator enable_nccl_comm_suspend model_impl logits_processors pooler_config
        multimodal_config""",
        """tokenizer tokenizer_mode seed allowed_local_media_path allowed_media_domains
        tokenizer_revision allow_deprecated_quantization disable_cascade_attn skip_tokenizer_init
        served_model_name hf_token generation_config override_generation_config return_sampling_mask
        max_logprobs logprobs_mode use_fp64_gumbel enable_trace_replay sleep_preserve_parameter_names
        io_processor_plugin renderer_num_workers""",
    ),
    # Not given by users: read from the model's configuration file.
    "ModelArchitectureConfig": _split(
        """architectures model_type text_model_type hidden_size total_num_hidden_layers
        total_num_attention_heads head_size vocab_size total_num_kv_heads num_experts
        num_experts_per_token quantization_config is_deepseek_mla is_mm_prefix_lm rswa_window
        derived_max_model_len_and_key per_layer_overrides"""
    ),
    # Profiling runs the encoder on the largest input these allow.
    "BaseDummyOptions": _split("count"),
    "VideoDummyOptions": _split("count num_frames width height"),
    "ImageDummyOptions": _split("count width height"),
    "AudioDummyOptions": _split("count length"),
    "MultiModalConfig": _split(
        """language_model_only limit_per_prompt enable_mm_embeds mm_processor_kwargs mm_encoder_only
        mm_encoder_tp_mode mm_encoder_attn_backend mm_encoder_attn_dtype skip_mm_profiling
        video_pruning_rate video_pruning_method mm_ipc_gpu_memory_gb mm_tensor_ipc
        mm_device_do_normalize""",
        """media_io_kwargs mm_processor_cache_gb mm_processor_cache_type mm_hasher_algorithm
        mm_shm_cache_max_object_size_mb mm_encoder_fp8_scale_path mm_encoder_fp8_scale_save_path
        mm_encoder_fp8_scale_save_margin interleave_mm_strings allow_missing_mm_embeddings""",
    ),
    # Layerwise tracing changes how the model is compiled (vllm/compilation/wrapper.py).
    "ObservabilityConfig": _split(
        "enable_layerwise_nvtx_tracing",
        """show_hidden_metrics_for_version otlp_traces_endpoint collect_detailed_traces
        per_request_spec_decode_metrics kv_cache_metrics kv_cache_metrics_sample
        custom_histogram_buckets cudagraph_metrics enable_mfu_metrics enable_mm_processor_stats
        enable_logging_iteration_details jit_monitor_mode jit_monitor_verbose""",
    ),
    "UVAOffloadConfig": _split("cpu_offload_gb cpu_offload_params"),
    "PrefetchOffloadConfig": _split("offload_group_size offload_num_in_group offload_prefetch_step offload_params"),
    "OffloadConfig": _split("offload_backend uva prefetch"),
    "EPLBConfig": _split(
        "num_redundant_experts use_async communicator enable_migration_batching policy",
        "window_size step_interval log_balancedness log_balancedness_interval",
    ),
    "ParallelConfig": _split(
        """pipeline_parallel_size tensor_parallel_size prefill_context_parallel_size data_parallel_size
        data_parallel_size_local data_parallel_backend data_parallel_external_lb data_parallel_hybrid_lb
        is_moe_model enable_hc_sp enable_expert_parallel enable_batch_sharded_sampling
        enable_ep_weight_filter enable_eplb eplb_config expert_placement_strategy all2all_backend
        disable_custom_all_reduce enable_elastic_ep elastic_ep_max_dp_size enable_dbo ubatch_size
        dbo_decode_token_threshold dbo_prefill_token_threshold dp_sync_interval
        disable_nccl_for_dp_synchronization distributed_executor_backend worker_cls worker_extension_cls
        nnodes decode_context_parallel_size dcp_kv_cache_interleave_size dcp_comm_backend
        dcp_q_replicate cp_kv_cache_interleave_size enable_shm_tensor_arena""",
        """data_parallel_rank data_parallel_rank_local data_parallel_master_ip data_parallel_rpc_port
        data_parallel_master_port max_parallel_loading_workers ray_workers_use_nsight ray_runtime_env
        placement_group master_addr master_port node_rank numa_bind numa_bind_nodes numa_bind_cpus
        assigned_physical_gpu_ids distributed_timeout_seconds cpu_distributed_timeout_seconds rank
        enable_fault_tolerance fault_tolerance_config""",
    ),
    "PoolerConfig": _split(
        "task pooling_type seq_pooling_type tok_pooling_type enable_chunked_processing",
        """use_activation enable_flash_late_interaction dimensions max_embed_len logit_mean logit_sigma
        step_tag_id returned_token_ids""",
    ),
    "ProfilerConfig": _split(
        "",
        """profiler torch_profiler_dir torch_profiler_activities proton_profiler_dir proton_context
        proton_data proton_backend proton_mode proton_hook proton_output_format proton_graph_attribution
        torch_profiler_with_stack torch_profiler_with_flops torch_profiler_use_gzip
        torch_profiler_dump_cuda_time_total torch_profiler_record_shapes torch_profiler_with_memory
        capture_torch_profiler detailed_trace_annotation ignore_frontend delay_iterations max_iterations
        warmup_iterations active_iterations wait_iterations""",
    ),
    "QuantSpec": _split("weight activation"),
    "QuantizationConfigArgs": _split("linear moe ignore targets"),
    "ReasoningConfig": _split("", "reasoning_parser reasoning_start_str reasoning_end_str"),
    "SchedulerConfig": _split(
        """runner_type max_num_batched_tokens max_num_scheduled_tokens max_num_seqs max_num_active_seqs
        long_prefill_token_threshold long_prefill_token_threshold_adaptive enable_chunked_prefill
        is_multimodal_model scheduler_cls disable_hybrid_kv_cache_manager disable_chunked_mm_input
        async_scheduling prefill_schedule_interval""",
        """max_num_queued_reqs max_num_queued_tokens policy scheduler_reserve_full_isl watermark
        stream_interval""",
    ),
    "SpeculativeConfig": _split(
        """enforce_eager num_speculative_tokens model method draft_tensor_parallel_size
        tensor_parallel_size quantization moe_backend attention_backend kv_cache_dtype max_model_len
        revision code_revision index_share_for_mtp_iteration disable_padded_drafter_batch
        disable_eagle_block_drop draft_lm_head_quantization use_local_argmax_reduction
        use_heterogeneous_vocab prompt_lookup_max prompt_lookup_min parallel_drafting
        target_model_config target_parallel_config num_speculative_tokens_per_batch_size
        draft_model_config draft_parallel_config draft_load_config rejection_sample_method
        synthetic_acceptance_rates synthetic_acceptance_length enable_adaptive_verification
        draft_sample_method dspark_draft_topk xpress_topc fly_window_size fly_entropy_threshold
        fly_entropy_top_k suffix_decoding_max_tree_depth suffix_decoding_max_spec_factor
        suffix_decoding_min_token_prob suffix_decoding_max_cached_requests
        disable_lookahead_block_hashes"""
    ),
    "SpeechToTextParams": _split(
        "", "audio stt_config model_config language hotwords task_type request_prompt to_language"
    ),
    "SpeechToTextConfig": _split("", "sample_rate max_audio_clip_s overlap_chunk_second min_energy_split_window_size"),
    "StructuredOutputsConfig": _split(
        "",
        """backend disable_any_whitespace disable_additional_properties reasoning_parser
        reasoning_parser_plugin enable_in_reasoning""",
    ),
    # Fields that hold a config class follow the class and need no line here.
    "VllmConfig": _split(
        "quant_config optimization_level performance_mode",
        "additional_config instance_id shutdown_timeout",
    ),
    "WatchdogConfig": _split("", "timeout check_interval dump_dir"),
    # Any watermark at all forces model runner V2; how it is drawn changes no graph.
    "WatermarkConfig": _split(
        "algorithm allow_target_only_watermarking",
        "key alpha context_width deduplicate_contexts deduplicate_contexts_max_history prf",
    ),
    "WeightTransferConfig": _split("", "backend"),
    "FrontendArgs": _split(
        "",
        """allow_credentials allowed_headers allowed_methods allowed_origins
        anthropic_disabled_thinking_effort api_key chat_template chat_template_content_format
        cohere_format cohere_is_reasoning_model data_parallel_supervisor_port
        default_chat_template_kwargs disable_access_log_for_endpoints disable_fastapi_docs
        disable_uvicorn_access_log dp_supervisor_probe_failure_threshold dp_supervisor_probe_interval_s
        dp_supervisor_probe_timeout_s enable_auto_tool_choice enable_flash_late_interaction
        enable_force_include_usage enable_log_deltas enable_log_outputs enable_offline_docs
        enable_per_request_metrics enable_prompt_tokens_details enable_request_id_headers
        enable_scale_out enable_server_load_tracking enable_ssl_refresh enable_tokenizer_info_endpoint
        exclude_tools_when_tool_choice_none fingerprint_mode fingerprint_value grpc_port
        h11_max_header_count h11_max_incomplete_event_size host log_error_stack lora_modules max_log_len
        middleware port reasoning_effort_map response_role return_tokens_as_token_ids root_path
        sse_keep_alive_interval ssl_ca_certs ssl_cert_reqs ssl_certfile ssl_ciphers ssl_keyfile
        tokens_only tool_call_parser tool_parser_plugin tool_server tool_strict_level
        trust_request_chat_template trust_request_mm_kwargs uds uvicorn_log_level""",
    ),
}

# Flags that set no field of a config class.
FLAGS = _split(
    """data_parallel_multi_port_external_lb enable_lora gdn_prefill_backend kda_decode_backend
    kda_prefill_backend""",
    """aggregate_engine_logging api_server_count config data_parallel_address data_parallel_start_rank
    device_ids disable_log_stats enable_log_requests fail_on_environ_validation grpc headless
    log_config_file mm_processor_device shutdown_timeout log_level""",
)

# Variables of other platforms have no effect on the machines that plans are made for.
OTHER_PLATFORM_VARIABLES = ("VLLM_ROCM_*", "VLLM_XPU_*", "VLLM_XLA_*", "VLLM_TPU_*", "VLLM_ZENTORCH_*")

VARIABLES = _split(
    # runner, graphs, compilation
    """VLLM_USE_V2_MODEL_RUNNER VLLM_USE_BREAKABLE_CUDAGRAPH VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS
    VLLM_ENABLE_CUDAGRAPH_GC VLLM_ENABLE_STARTUP_PLAN VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN
    VLLM_USE_STANDALONE_COMPILE VLLM_ENABLE_PREGRAD_PASSES VLLM_USE_AOT_COMPILE
    VLLM_USE_MEGA_AOT_ARTIFACT VLLM_USE_BYTECODE_HOOK VLLM_FORCE_AOT_LOAD
    VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING VLLM_USE_LAYERNAME
    VLLM_BATCH_INVARIANT VLLM_ENABLE_V1_MULTIPROCESSING"""
    # what the machine and its kernels are
    """ VLLM_TARGET_DEVICE VLLM_USE_HW_AGNOSTIC VLLM_DISABLED_KERNELS VLLM_FLOAT32_MATMUL_PRECISION
    VLLM_MLA_DISABLE VLLM_KV_CACHE_LAYOUT VLLM_SSM_CONV_STATE_LAYOUT VLLM_TRITON_USE_TD
    VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE VLLM_ENABLE_FLA_PACKED_RECURRENT_DECODE
    VLLM_GDN_DECODE_KERNEL VLLM_USE_FLASHINFER_SAMPLER VLLM_USE_OINK_OPS VLLM_ENABLE_HPC_OPS
    VLLM_USE_TRITON_AWQ VLLM_USE_DEEP_GEMM VLLM_MOE_USE_DEEP_GEMM VLLM_USE_DEEP_GEMM_E8M0
    VLLM_USE_DEEP_GEMM_TMA_ALIGNED_SCALES VLLM_USE_FUSED_MOE_GROUPED_TOPK VLLM_MOE_SKIP_PADDING
    VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER VLLM_B12X_MOE_FP4_FORCE_A16 VLLM_USE_FLASHINFER_MOE_INT4
    VLLM_MARLIN_USE_ATOMIC_ADD VLLM_MARLIN_INPUT_DTYPE VLLM_HUMMING_ONLINE_QUANT_CONFIG
    VLLM_HUMMING_INPUT_QUANT_CONFIG VLLM_HUMMING_USE_F16_ACCUM VLLM_HUMMING_MOE_GEMM_TYPE
    VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD
    VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE VLLM_MOE_ROUTING_SIMULATION_STRATEGY VLLM_ENABLE_GEMM_RS
    VLLM_KIMI_K3_GEMM_AR VLLM_KIMI_K3_AUX_ATTN_RES_STREAM VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT
    VLLM_STEP5_SHARD_SP_SHARED_EXPERT VLLM_DISABLE_SHARED_EXPERTS_STREAM
    VLLM_DISABLE_DSV4_MEGAMOE_SHARED_EXPERT_FUSION VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD
    VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD VLLM_COHERE2_ATTN_MOE_DUAL_STREAM_TOKEN_THRESHOLD
    VLLM_LORA_ENABLE_DUAL_STREAM VLLM_LORA_DISABLE_PDL"""
    # memory, workspaces, offload
    """ VLLM_SPARSE_INDEXER_MAX_LOGITS_MB VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE
    VLLM_DEEPEP_BUFFER_SIZE_MB VLLM_REPLICATE_EMBED VLLM_CPU_KVCACHE_SPACE VLLM_USE_SIMPLE_KV_OFFLOAD
    VLLM_KV_OFFLOAD_MAX_BATCH_DESCRIPTORS VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY
    VLLM_WEIGHT_OFFLOADING_DISABLE_UVA VLLM_WSL2_ENABLE_PIN_MEMORY VLLM_MAX_NUM_BAD_WORDS
    VLLM_MAX_BAD_WORDS_TOTAL_TOKENS"""
    # parallelism and communication
    """ VLLM_PP_LAYER_PARTITION VLLM_DP_RANK VLLM_DP_RANK_LOCAL VLLM_DP_SIZE VLLM_DBO_COMM_SMS
    VLLM_DISABLE_PYNCCL VLLM_USE_NCCL_SYMM_MEM VLLM_ALLREDUCE_USE_SYMM_MEM VLLM_ALLREDUCE_USE_FLASHINFER
    VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC VLLM_FLASHINFER_ALLREDUCE_BACKEND VLLM_SKIP_P2P_CHECK
    VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE VLLM_DEEPEPLL_NVFP4_DISPATCH
    VLLM_DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL
    VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE VLLM_DEEPEP_V2_PREFER_OVERLAP
    VLLM_DEEPEP_V2_ALLOW_MULTIPLE_REDUCTION VLLM_DCP_Q_REPLICATE VLLM_USE_DIRECT_DCP_A2A
    VLLM_USE_DIRECT_DCP_Q_GATHER VLLM_USE_DIRECT_DCP_KV_GATHER VLLM_DISTRIBUTED_USE_SPLIT_GROUP
    VLLM_ELASTIC_EP_SCALE_UP_LAUNCH VLLM_RAY_PER_WORKER_GPUS VLLM_RAY_DP_PACK_STRATEGY
    CUDA_VISIBLE_DEVICES LOCAL_RANK VLLM_ALLOW_LONG_MAX_MODEL_LEN VLLM_MODEL_REDIRECT_PATH
    VLLM_USE_MODELSCOPE VLLM_TEST_FORCE_LOAD_FORMAT VLLM_TUNED_CONFIG_FOLDER
    VLLM_ENABLE_CUDA_COMPATIBILITY VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE
    VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM VLLM_USE_RAY_V2_EXECUTOR_BACKEND VLLM_USE_RAY_WRAPPED_PP_COMM""",
    # build time and provenance
    """VLLM_MAIN_CUDA_VERSION MAX_JOBS NVCC_THREADS VLLM_USE_PRECOMPILED VLLM_USE_PRECOMPILED_RUST
    VLLM_SKIP_PRECOMPILED_VERSION_SUFFIX VLLM_DOCKER_BUILD_CONTEXT VLLM_BUILD_COMMIT VLLM_BUILD_PIPELINE
    VLLM_BUILD_URL VLLM_IMAGE_TAG CMAKE_BUILD_TYPE VERBOSE VLLM_SKIP_VERSION_SUFFIX CUDA_HOME"""
    # folders, addresses, logging, telemetry
    """ VLLM_CONFIG_ROOT VLLM_CACHE_ROOT VLLM_HOST_IP VLLM_PORT VLLM_RPC_BASE_PATH VLLM_ASSETS_CACHE
    VLLM_ASSETS_CACHE_MODEL_CLEAN VLLM_LOOPBACK_IP VLLM_PROCESS_NAME_PREFIX VLLM_USAGE_STATS_SERVER
    VLLM_NO_USAGE_STATS VLLM_DO_NOT_TRACK VLLM_USAGE_SOURCE VLLM_CONFIGURE_LOGGING
    VLLM_LOGGING_CONFIG_PATH VLLM_LOGGING_LEVEL VLLM_LOGGING_STREAM VLLM_LOGGING_PREFIX
    VLLM_LOGGING_COLOR NO_COLOR FORCE_COLOR VLLM_LOG_STATS_INTERVAL VLLM_LOG_BATCHSIZE_INTERVAL
    VLLM_DISABLE_LOG_LOGO VLLM_LOG_MODEL_INSPECTION VLLM_REQUEST_BODY_LOG_LEVEL
    VLLM_DEBUG_LOG_API_SERVER_RESPONSE VLLM_DEBUG_MFU_METRICS VLLM_DEBUG_WORKSPACE VLLM_DEBUG_DUMP_PATH
    VLLM_PATTERN_MATCH_DEBUG VLLM_GPU_SYNC_CHECK VLLM_CUSTOM_SCOPES_FOR_PROFILING
    VLLM_NVTX_SCOPES_FOR_PROFILING VLLM_GC_DEBUG VLLM_TRACE_FUNCTION VLLM_COMPUTE_NANS_IN_LOGITS
    VLLM_RAISE_ON_LOGIT_NANS VLLM_SYSTEM_START_DATE VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"""
    # libraries by path, plugins, caches
    """ VLLM_NCCL_SO_PATH VLLM_NCCL_INCLUDE_PATH VLLM_CUDART_SO_PATH LD_LIBRARY_PATH
    VLLM_CUDA_COMPATIBILITY_PATH VLLM_PLUGINS VLLM_LORA_RESOLVER_CACHE_DIR
    VLLM_LORA_RESOLVER_HF_REPO_LIST VLLM_ALLOW_RUNTIME_LORA_UPDATING VLLM_DISABLE_COMPILE_CACHE
    VLLM_COMPILE_CACHE_SAVE_FORMAT VLLM_HAS_FLASHINFER_CUBIN VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR
    VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS VLLM_DEEP_GEMM_WARMUP VLLM_TRITON_JIT_WARMUP_NUM_THREADS
    VLLM_TRITON_FORCE_FIRST_CONFIG VLLM_USE_SPINLOOP_EXT"""
    # the HTTP server and what requests may ask
    """ VLLM_API_KEY VLLM_ENGINE_READY_TIMEOUT_S VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT
    VLLM_CHAT_TEMPLATE_FUEL VLLM_KEEP_ALIVE_ON_ENGINE_DEATH VLLM_HTTP_TIMEOUT_KEEP_ALIVE
    VLLM_HTTP_MAX_REQUEST_BODY_SIZE VLLM_MAX_STOP_STRINGS VLLM_MAX_N_SEQUENCES
    VLLM_MAX_COMPLETION_PROMPTS VLLM_USE_RUST_FRONTEND VLLM_USE_RUST_BENCH VLLM_RUST_FRONTEND_PATH
    VLLM_SERVER_DEV_MODE VLLM_SKIP_MODEL_NAME_VALIDATION VLLM_DISABLE_REQUEST_ID_RANDOMIZATION
    VLLM_ENABLE_RESPONSES_API_STORE VLLM_ENABLE_COHERE_API VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS
    VLLM_ENFORCE_STRICT_TOOL_CALLING VLLM_BEAM_ALWAYS_CONSTRAIN_OUTPUT
    VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS
    VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY VLLM_XGRAMMAR_CACHE_MB
    VLLM_REGEX_COMPILATION_TIMEOUT_S VLLM_V1_USE_OUTLINES_CACHE VLLM_USE_FASTOKENS"""
    # media
    """ VLLM_IMAGE_FETCH_TIMEOUT VLLM_VIDEO_FETCH_TIMEOUT VLLM_AUDIO_FETCH_TIMEOUT VLLM_MEDIA_CACHE
    VLLM_MEDIA_CACHE_MAX_SIZE_MB VLLM_MEDIA_CACHE_TTL_HOURS VLLM_MEDIA_FETCH_MAX_RETRIES
    VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB VLLM_MEDIA_URL_ALLOW_REDIRECTS VLLM_MEDIA_LOADING_THREAD_COUNT
    VLLM_MAX_AUDIO_CLIP_FILESIZE_MB VLLM_MAX_AUDIO_DECODE_DURATION_S VLLM_MAX_AUDIO_DECODE_BYTES
    VLLM_MAX_EMBED_DECODE_BYTES VLLM_MAX_AUDIO_PREPROCESS_WORKERS VLLM_MAX_IMAGE_PIXELS
    VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB
    VLLM_VIDEO_LOADER_BACKEND VLLM_MEDIA_CONNECTOR"""
    # processes, messages, hosts, loading
    """ VLLM_WORKER_MULTIPROC_METHOD VLLM_RINGBUFFER_WARNING_INTERVAL VLLM_MSGPACK_ZERO_COPY_THRESHOLD
    VLLM_ALLOW_INSECURE_SERIALIZATION VLLM_MQ_MAX_CHUNK_BYTES_MB VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS
    VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS VLLM_V1_OUTPUT_PROC_CHUNK_SIZE VLLM_DP_MASTER_IP
    VLLM_DP_MASTER_PORT VLLM_RANDOMIZE_DP_DUMMY_INPUTS VLLM_RAY_BUNDLE_INDICES
    VLLM_RAY_DP_PLACEMENT_NODE_IPS VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY
    VLLM_RAY_EXTRA_ENV_VARS_TO_COPY VLLM_ELASTIC_EP_DRAIN_REQUESTS VLLM_FASTSAFETENSORS_QUEUE_SIZE
    VLLM_GPU_NIC_PCIE_MAPPING VLLM_NIC_SELECTION_VARS VLLM_CPU_OMP_THREADS_BIND
    VLLM_CPU_NUM_OF_RESERVED_CPU VLLM_CPU_CI_ENV VLLM_CPU_ATTN_SPLIT_KV VLLM_CPU_INT4_W4A8
    S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY S3_ENDPOINT_URL"""
    # connectors' own channels
    """ VLLM_NIXL_SIDE_CHANNEL_HOST VLLM_NIXL_SIDE_CHANNEL_PORT VLLM_P2P_SIDE_CHANNEL_HOST
    VLLM_P2P_SIDE_CHANNEL_PORT VLLM_P2P_MAX_PEERS VLLM_P2P_HANDSHAKE_TIMEOUT_S VLLM_P2P_IDLE_TIMEOUT_S
    VLLM_EC_SIDE_CHANNEL_HOST VLLM_EC_SIDE_CHANNEL_PORT VLLM_MOONCAKE_CONNECTOR_TIMEOUT
    VLLM_MOONCAKE_BOOTSTRAP_PORT VLLM_MOONCAKE_STORE_TIER_LOG VLLM_MOONCAKE_LOAD_RECV_THREADS
    VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO MOONCAKE_PREFERRED_SEGMENT MOONCAKE_REQUESTER_LOCAL_HOSTNAME
    VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES""",
)

# Variables that libraries under the engine read; a pattern ends in ``*``.
OUTSIDE_VARIABLES = _split(
    """TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE TORCHDYNAMO_* TORCHINDUCTOR_* PYTORCH_*
    CUDA_LAUNCH_BLOCKING CUDA_DEVICE_ORDER CUDA_DEVICE_MAX_CONNECTIONS CUDA_MODULE_LOADING
    CUBLAS_WORKSPACE_CONFIG CUBLASLT_WORKSPACE_SIZE NCCL_* TORCH_NCCL_* NVSHMEM_* FLASHINFER_*
    NVIDIA_VISIBLE_DEVICES NVIDIA_TF32_OVERRIDE""",
    """HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_* TRANSFORMERS_* TOKENIZERS_PARALLELISM XDG_CACHE_HOME
    XDG_CONFIG_HOME TMPDIR HOME PATH LANG LC_* TZ OMP_* MKL_* TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR
    FLASHINFER_WORKSPACE_BASE RAY_* OTEL_* OTEL_EXPORTER_OTLP_HEADERS HTTP_PROXY HTTPS_PROXY NO_PROXY
    http_proxy https_proxy no_proxy SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_*
    GOOGLE_APPLICATION_CREDENTIALS LD_* DYLD_* PYTHON* GLIBC_TUNABLES MODELSCOPE_API_TOKEN MODELSCOPE_*
    PROMETHEUS_MULTIPROC_DIR NCCL_DEBUG NCCL_DEBUG_FILE NCCL_DEBUG_SUBSYS NCCL_SOCKET_IFNAME NCCL_IB_*
    NCCL_NET_PLUGIN NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_CONF_FILE""",
)

# What a field's own validator takes beyond its annotation (``field_validator(..., mode="before")``).
WIDER: dict[str, TypeJson] = {
    "AttentionConfig.backend": {"literal": ["auto"]},
    "SpeculativeConfig.attention_backend": {"literal": ["auto"]},
    "QuantizationConfigArgs.linear": "str",
    "QuantizationConfigArgs.moe": "str",
    "IrOpPriorityConfig.rms_norm": "str",
    "IrOpPriorityConfig.fused_add_rms_norm": "str",
    "IrOpPriorityConfig.gelu_and_mul_sparse": "str",
}
# Fields whose validator folds case and takes ``-`` for ``_``.
FOLDED = frozenset(
    {"KernelConfig.moe_backend", "KernelConfig.linear_backend", "KernelConfig.sparse_indexer_topk_backend"}
)

# What makes the engine run code from elsewhere.  True: any value but the default.  CUSTOM: a value that is
# none of the type's own choices, or, where it has none, one that looks like an import path.  A tuple: those.
CUSTOM = "custom"
CODE_FIELDS: dict[str, bool | str | tuple[str, ...]] = {
    "ModelConfig.trust_remote_code": True,
    "ModelConfig.model_class_overrides": True,
    "ModelConfig.logits_processors": True,
    "ModelConfig.io_processor_plugin": True,
    "ParallelConfig.worker_cls": True,
    "ParallelConfig.worker_extension_cls": True,
    "ParallelConfig.distributed_executor_backend": CUSTOM,
    "ParallelConfig.ray_runtime_env": True,
    "SchedulerConfig.scheduler_cls": True,
    "LoadConfig.load_format": CUSTOM,
    "CompilationConfig.backend": CUSTOM,
    "CompilationConfig.inductor_passes": True,
    "StructuredOutputsConfig.reasoning_parser_plugin": True,
    "KVTransferConfig.kv_connector_module_path": True,
    "ECTransferConfig.ec_connector_module_path": True,
    "EncoderCacheManagerConfig.encoder_cache_manager_cls": True,
    "SpeculativeConfig.method": ("custom_class",),
    "LoggingConfig.pylogging_config_file": True,
    "FrontendArgs.middleware": True,
    "FrontendArgs.tool_parser_plugin": True,
    "FrontendArgs.tool_server": True,
}
# ``--config`` reads flags from a file that nothing here has checked.
CODE_FLAGS = frozenset({"config", "log_config_file"})
CODE_VARIABLES = _names(
    """VLLM_PLUGINS VLLM_NCCL_SO_PATH VLLM_NCCL_INCLUDE_PATH VLLM_CUDART_SO_PATH
    VLLM_CUDA_COMPATIBILITY_PATH VLLM_RUST_FRONTEND_PATH VLLM_ALLOW_INSECURE_SERIALIZATION
    VLLM_SERVER_DEV_MODE VLLM_LOGGING_CONFIG_PATH VLLM_LOGGING_STREAM VLLM_CACHE_ROOT
    VLLM_FORCE_AOT_LOAD LD_LIBRARY_PATH LD_* DYLD_* PYTHON* PATH GLIBC_TUNABLES CUDA_HOME
    NCCL_NET_PLUGIN NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_CONF_FILE TORCHINDUCTOR_CACHE_DIR
    TRITON_CACHE_DIR FLASHINFER_WORKSPACE_BASE"""
)

SECRET_FIELDS = _names(
    """ModelConfig.hf_token FrontendArgs.api_key KVTransferConfig.kv_connector_extra_config
    ECTransferConfig.ec_connector_extra_config LoadConfig.model_loader_extra_config WatermarkConfig.key"""
)
SECRET_VARIABLES = _names(
    """VLLM_API_KEY S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY HF_TOKEN HUGGING_FACE_HUB_TOKEN AWS_*
    GOOGLE_APPLICATION_CREDENTIALS MODELSCOPE_API_TOKEN OTEL_EXPORTER_OTLP_HEADERS"""
)


def variable_verdict(name: str) -> bool | None:
    """Whether an environment variable changes the plan; None where no list has it."""
    if any(fnmatchcase(name, pattern) for pattern in OTHER_PLATFORM_VARIABLES):
        return False
    known = VARIABLES.verdict(name)
    return OUTSIDE_VARIABLES.verdict(name) if known is None else known
