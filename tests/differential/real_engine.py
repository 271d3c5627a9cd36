"""The imported engine as a second oracle: the same questions as ``engine_oracle``, asked of real objects.

A program of its own, run by an interpreter that has the engine's Python dependencies (torch for CPU is
enough)::

    PYTHONPATH=ROOT python real_engine.py < requests.json > answers.json

A request is ``{"ask": NAME, "with": ARGUMENTS}`` with the names and arguments of ``engine_oracle``.  The
answer to all is ``{"version": ..., "files": {MODULE: FILE}, "answers": [...]}``.

Configs are real config classes, managers and speculators are real ones.  Replaced are only the process
group, the graph pool and capability of the platform, and, for a capture, torch's recording of a graph.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

# Multimodal packages that a CPU installation may lack or carry for another build of torch; not needed here.
sys.modules.update(dict.fromkeys(("torchvision", "torchaudio", "torchcodec")))  # type: ignore[arg-type]


def main() -> None:
    requests = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    real = _Real()
    answers = [real.answer(request["ask"], request["with"]) for request in requests]
    json.dump({"version": real.version, "files": real.files, "answers": answers}, stdout)


class _Real:
    """The engine's modules, imported once."""

    def __init__(self) -> None:
        import vllm.config.compilation
        import vllm.config.parallel
        import vllm.config.scheduler
        import vllm.config.speculative
        import vllm.config.vllm
        import vllm.engine.arg_utils
        import vllm.platforms
        import vllm.platforms.interface
        import vllm.usage.usage_lib
        import vllm.v1.attention.backend
        import vllm.v1.worker.gpu.cudagraph_utils
        import vllm.v1.worker.gpu.lora_utils
        import vllm.v1.worker.gpu.spec_decode.dflash.cudagraph
        import vllm.v1.worker.gpu.spec_decode.dflash.speculator
        import vllm.v1.worker.gpu.spec_decode.dspark.speculator
        import vllm.v1.worker.gpu.spec_decode.eagle.speculator
        import vllm.v1.worker.gpu.spec_decode.mtp.speculator
        import vllm.v1.worker.gpu.spec_decode.multi_module_mtp.speculator
        import vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils

        self.config = vllm.config.vllm
        self.compilation = vllm.config.compilation
        self.parallel = vllm.config.parallel
        self.scheduler = vllm.config.scheduler
        self.speculative = vllm.config.speculative
        self.arguments = vllm.engine.arg_utils
        self.usage = vllm.usage.usage_lib
        self.attention = vllm.v1.attention.backend
        self.graphs = vllm.v1.worker.gpu.cudagraph_utils
        self.lora = vllm.v1.worker.gpu.lora_utils
        self.drafting = vllm.v1.worker.gpu.spec_decode
        self.platform = vllm.platforms.current_platform
        self.capability = vllm.platforms.interface.DeviceCapability
        self.version = _version(vllm)
        self.files = {
            module.__name__: os.path.realpath(str(module.__file__))
            for module in (
                self.config,
                self.compilation,
                self.arguments,
                self.graphs,
                self.drafting.eagle.speculator,
            )
        }
        self.graphs.get_pp_group = lambda: SimpleNamespace(is_first_rank=True, is_last_rank=True)

    def answer(self, ask: str, arguments: dict[str, Any]) -> Any:
        questions: dict[str, Callable[..., Any]] = {
            "stock_capture_sizes": self.stock_capture_sizes,
            "stock_manager": self.stock_manager,
            "drafter_managers": self.drafter_managers,
            "resolve_mode": self.resolve_mode,
            "batch_defaults": self.batch_defaults,
            "lora_cases": self.lora_cases,
        }
        try:
            return questions[ask](**arguments)
        except (ValueError, AssertionError) as error:
            return {"refusal": type(error).__name__, "message": str(error)}

    def stock_capture_sizes(
        self,
        *,
        sm100: bool,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        num_speculative_tokens: int,
        schedule: list[list[int]] | None,
        mode: str,
        performance_mode: str,
        max_size: int | None,
        sizes: list[int] | None,
    ) -> Any:
        config = self._vllm_config(mode, sizes, max_size, max_num_seqs, num_speculative_tokens, schedule)
        config.scheduler_config.max_num_batched_tokens = max_num_batched_tokens
        config.performance_mode = performance_mode
        with self._machine((10, 0) if sm100 else (9, 0)):
            config._set_cudagraph_sizes()
        compiled = config.compilation_config
        return [list(compiled.cudagraph_capture_sizes), compiled.max_cudagraph_capture_size]

    def stock_manager(
        self,
        *,
        sizes: list[int],
        max_size: int,
        max_num_seqs: int,
        mode: str,
        decode_query_len: int,
        num_speculative_tokens: int,
        schedule: list[list[int]] | None,
        lora_cases: list[int],
        varlen_decode: bool,
        ubatches: bool,
        steps: list[list[Any]],
    ) -> Any:
        config = self._vllm_config(mode, sizes, max_size, max_num_seqs, num_speculative_tokens, schedule)
        config.parallel_config.enable_dbo = ubatches
        with self._machine((9, 0)):
            manager = self.graphs.CudaGraphManager(
                config,
                None,
                self._mode(mode),
                decode_query_len,
                lora_capture_cases=lora_cases,
                varlen_decode=varlen_decode,
                ubatch_runner=mock.MagicMock() if ubatches else None,
            )
        manager._graphs_captured = True
        return {
            "descs": [_plain(desc) for desc in self._in_capture_order(manager)],
            "dispatched": [_plain(manager.dispatch(*step)) for step in steps],
        }

    def drafter_managers(
        self,
        *,
        name: str,
        num_speculative_tokens: int,
        num_query_per_req: int | None,
        schedule: list[list[int]] | None,
        sizes: list[int],
        max_size: int,
        max_num_seqs: int,
        mode: str,
        breakable_graphs: bool,
        draft_support: str,
        in_place_metadata: bool,
    ) -> Any:
        speculator = self._speculator(name, num_speculative_tokens, num_query_per_req)
        config = self._vllm_config(mode, sizes, max_size, max_num_seqs, num_speculative_tokens, schedule)
        support = self.attention.AttentionCGSupport[draft_support]
        vars(speculator).update(
            vllm_config=config,
            device=None,
            speculative_config=config.speculative_config,
            supports_decode_metadata_update=in_place_metadata,
            attn_cg_support=SimpleNamespace(min_cg_support=support, min_cg_attn_backend="stand-in"),
        )
        variable = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1" if breakable_graphs else "0"}
        with mock.patch.dict(os.environ, variable), self._machine((9, 0)):
            speculator.init_cudagraph_manager(self._mode(mode))
            return self._managers(speculator)

    def resolve_mode(
        self,
        *,
        mode: str,
        support: str,
        decode_query_len: int,
        compiled: bool,
        splitting_ops_contain_attention: bool,
        piecewise_capture_available: bool,
    ) -> Any:
        modes = self.compilation.CompilationMode
        config = self.compilation.CompilationConfig(cudagraph_mode=self._mode(mode))
        config.mode = modes.VLLM_COMPILE if compiled else modes.NONE
        config.splitting_ops = list(config._attention_ops) if splitting_ops_contain_attention else []
        resolved = config.resolve_cudagraph_mode_and_sizes(
            self.attention.AttentionCGSupport[support],
            "stand-in",
            decode_query_len,
            use_v2_model_runner=True,
            piecewise_capture_available=piecewise_capture_available,
        )
        return resolved.name

    def batch_defaults(
        self, *, memory_bytes: int, name: str, capability: list[int], max_model_len: int, **given: Any
    ) -> Any:
        arguments = self.arguments.EngineArgs(
            max_num_seqs=given["max_num_seqs"],
            max_num_batched_tokens=given["max_num_batched_tokens"],
            performance_mode=given["performance_mode"],
            enable_chunked_prefill=given["enable_chunked_prefill"],
        )
        model = SimpleNamespace(max_model_len=max_model_len, is_multimodal_model=False, model="stand-in")
        cuda = {
            "is_cpu": False,
            "is_tpu": False,
            "get_device_name": name,
            "get_device_total_memory": memory_bytes,
        }
        with self._machine((capability[0], capability[1]), **cuda):
            arguments._set_default_max_num_seqs_and_batched_tokens_args(
                self.usage.UsageContext[given["usage"]], model, self.parallel.ParallelConfig()
            )
        return [arguments.max_num_seqs, arguments.max_num_batched_tokens]

    def lora_cases(self, *, max_loras: int, specialize_active_lora: bool, cudagraph_specialize_lora: bool) -> Any:
        config = self.compilation.CompilationConfig(cudagraph_specialize_lora=cudagraph_specialize_lora)
        lora = SimpleNamespace(max_loras=max_loras, specialize_active_lora=specialize_active_lora)
        return self.lora.get_lora_capture_cases(lora, config)

    def _mode(self, name: str) -> Any:
        return self.compilation.CUDAGraphMode[name]

    def _vllm_config(
        self,
        mode: str,
        sizes: list[int] | None,
        max_size: int | None,
        max_num_seqs: int,
        num_speculative_tokens: int,
        schedule: list[list[int]] | None,
    ) -> Any:
        """A VllmConfig whose validator has not run: it would turn graphs off on a CPU."""
        config = object.__new__(self.config.VllmConfig)
        written = {"cudagraph_capture_sizes": sizes, "max_cudagraph_capture_size": max_size}
        compiled = self.compilation.CompilationConfig(
            cudagraph_mode=self._mode(mode), **{k: v for k, v in written.items() if v is not None}
        )
        vars(config).update(
            compilation_config=compiled,
            model_config=SimpleNamespace(enforce_eager=False, max_model_len=1),
            scheduler_config=self.scheduler.SchedulerConfig.default_factory(max_num_seqs=max_num_seqs),
            speculative_config=self._speculative(num_speculative_tokens, schedule),
            diffusion_config=None,
            parallel_config=self.parallel.ParallelConfig(),
            cache_config=SimpleNamespace(use_kda_recoverssm=False),
            performance_mode="balanced",
        )
        return config

    def _speculative(self, num_speculative_tokens: int, schedule: list[list[int]] | None) -> Any:
        if num_speculative_tokens == 0:
            return None
        config = object.__new__(self.speculative.SpeculativeConfig)
        vars(config).update(
            num_speculative_tokens=num_speculative_tokens, num_speculative_tokens_per_batch_size=schedule
        )
        return config

    def _speculator(self, name: str, num_speculative_tokens: int, num_query_per_req: int | None) -> Any:
        packages = {
            "EagleSpeculator": "eagle",
            "MTPSpeculator": "mtp",
            "MultiModuleMTPSpeculator": "multi_module_mtp",
        }
        package = packages.get(name) or name.removesuffix("Speculator").lower()
        kind = getattr(getattr(self.drafting, package).speculator, name)
        speculator = object.__new__(kind)
        vars(speculator).update({name: mock.MagicMock() for name in _CAPTURE_ATTRIBUTES})
        speculator.num_speculative_steps = num_speculative_tokens
        speculator.max_num_reqs = 1
        if num_query_per_req is not None:
            speculator.num_query_per_req = num_query_per_req
        return speculator

    def _managers(self, speculator: Any) -> Any:
        kind = self.graphs.CudaGraphManager
        managers = {name: value for name, value in vars(speculator).items() if isinstance(value, kind)}
        planned = {name: [_plain(d) for d in self._in_capture_order(manager)] for name, manager in managers.items()}
        with self._recording():
            speculator.capture()
        return {
            name: {
                "mode": manager.cudagraph_mode.name,
                "decode_query_len": manager.decode_query_len,
                "planned": planned[name],
                "captured_full": [_plain(desc) for desc in manager.graphs],
            }
            for name, manager in managers.items()
        }

    def _in_capture_order(self, manager: Any) -> Iterator[Any]:
        for mode in ("PIECEWISE", "FULL"):
            yield from manager._capture_descs.get(self._mode(mode), ())

    @contextlib.contextmanager
    def _machine(self, capability: tuple[int, int], **answers: Any) -> Iterator[None]:
        """The platform with this capability and these answers, and a graph pool that is no pool."""
        kind = type(self.platform)
        replaced = {"get_device_capability": self.capability(*capability), "get_global_graph_pool": None}
        with contextlib.ExitStack() as stack:
            for method, answer in {**replaced, **answers}.items():
                stack.enter_context(mock.patch.object(kind, method, mock.Mock(return_value=answer)))
            yield

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """A capture without a device: torch records nothing, the inputs of a forward are absent."""
        ar = self.drafting.target_dependent_ar.cudagraph_utils
        nowhere: list[tuple[Any, str, Any]] = [
            (self.graphs, "graph_capture", _context),
            (self.graphs, "is_global_first_rank", lambda: False),
            (self.graphs, "current_stream", lambda: None),
            (self.graphs, "get_offloader", mock.MagicMock()),
            (self.graphs.torch.cuda, "CUDAGraph", mock.MagicMock()),
            (self.graphs.torch.cuda, "graph", mock.MagicMock()),
            (ar, "prepare_inputs_to_capture", _no_inputs),
            (
                self.drafting.dflash.cudagraph,
                "_prepare_dflash_inputs_to_capture",
                _no_inputs,
            ),
        ]
        if hasattr(self.graphs, "capture_pool"):
            nowhere.append((self.graphs, "capture_pool", mock.MagicMock()))
        with contextlib.ExitStack() as stack:
            for owner, name, replacement in nowhere:
                stack.enter_context(mock.patch.object(owner, name, replacement))
            yield


# What the speculators' own `capture` reads besides their managers.
_CAPTURE_ATTRIBUTES = (
    "_aux_staging",
    "_context_slot_mappings",
    "_generate_draft",
    "_generate_drafts",
    "_generate_fused_drafts",
    "_group_causal",
    "_prefill",
    "_prepare_graph_forward",
    "attn_groups",
    "block_tables",
    "draft_model_config",
    "idx_mapping",
    "input_buffers",
    "kv_cache_config",
    "last_token_indices",
    "max_model_len",
    "model",
    "model_state",
    "sample_idx_mapping",
    "sample_indices",
    "sample_pos",
    "target_attn_groups",
    "target_input_buffers",
)


def _plain(desc: Any) -> list[Any]:
    return [
        desc.cg_mode.name,
        desc.num_tokens,
        desc.num_reqs,
        desc.uniform_token_count,
        desc.max_query_len,
        desc.num_active_loras,
        desc.num_ubatches,
        getattr(desc, "num_speculative_tokens", None),
    ]


def _context(*_: Any, **__: Any) -> Any:
    return contextlib.nullcontext()


def _no_inputs(*_: Any, **__: Any) -> tuple[None, None]:
    return None, None


def _version(package: ModuleType) -> str:
    """Of the package that was imported, by its own version file: another one may be installed beside it."""
    from importlib import metadata

    root = Path(str(package.__file__)).resolve().parent.parent
    found = {d.version for d in metadata.distributions(path=[str(root)]) if d.name.startswith("vllm")}
    assert len(found) == 1, f"{root}: {sorted(found)}"
    return found.pop()


if __name__ == "__main__":
    main()
