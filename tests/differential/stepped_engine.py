"""A whole engine on the CPU whose graphs are stand-ins, driven by the extension as in a worker.

A program of its own, in an interpreter with vLLM's CPU build, whose compiled modules serve the Python source of the
version under test::

    PYTHONPATH=SOURCE:REPOSITORY python stepped_engine.py FOLDER < [SCENARIO, ...] > {SCENARIO: RESULT, ...}

Triton's kernels run in its interpreter.  A stand-in graph is what capture recorded: the engine's own function with the
metadata and buffers of its capture, which a replay reads as they are then.  Real are the model runner, its drafter,
the graph managers and their dispatch.
"""

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

DRAFTS, SIZES, PIECEWISE_SIZES, LATER_SIZES = 2, [1, 3], [2, 12], [1, 4]
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 128,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "torch_dtype": "float32", "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
EAGLE = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 128}


def main() -> None:
    scenarios = json.load(sys.stdin)
    stdout, sys.stdout = sys.stdout, sys.stderr  # the engine logs to stdout
    pretend_to_be_built_for_the_cpu()
    stand_ins = StandIns(engine_in(Path(sys.argv[1])))
    json.dump({name: stand_ins.answer(name) for name in scenarios}, stdout)


def pretend_to_be_built_for_the_cpu() -> None:
    os.environ.update(
        TRITON_INTERPRET="1", VLLM_USE_V2_MODEL_RUNNER="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_CI_ENV="1", VLLM_TARGET_DEVICE="cpu", CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip
    import triton.backends

    driver = SimpleNamespace(is_active=lambda: True)
    triton.backends.backends["cpu"] = SimpleNamespace(driver=driver, compiler=None)
    installed = importlib.metadata.version
    importlib.metadata.version = lambda name: "0.33.0+cpu" if name == "vllm" else installed(name)


def engine_in(folder: Path) -> Any:
    """An engine with a small random model and drafter."""
    for name, config in (("target", LLAMA), ("draft", {**LLAMA, **EAGLE})):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    from vllm import LLM

    return LLM(
        model=str(folder / "target"), skip_tokenizer_init=True, load_format="dummy", dtype="float32", max_model_len=96,
        max_num_seqs=4, max_num_batched_tokens=32, enforce_eager=True, async_scheduling=False,
        speculative_config={"method": "eagle3", "model": str(folder / "draft"), "num_speculative_tokens": DRAFTS},
    )  # fmt: skip


class StandIns:
    """Stand-in graphs in the managers of a worker, under scenarios."""

    def __init__(self, llm: Any) -> None:
        from vllm.config.compilation import CUDAGraphMode
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder
        from vllm.v1.worker.gpu import cudagraph_utils
        from vllm.v1.worker.gpu.spec_decode.target_dependent_ar import cudagraph_utils as draft_utils

        self.worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
        self.llm, self.mode, self.scenario = llm, CUDAGraphMode, ""
        self.captured: dict[str, Any] = {}
        self.built: dict[str, Any] = {}
        self.before: dict[object, Any] = {}
        prepare, build = cudagraph_utils.prepare_inputs_to_capture, CPUAttentionMetadataBuilder.build

        def remembered(*given: Any, **named: Any) -> Any:
            state = prepare(*given, **named)
            self.captured = state.attn_metadata
            return state

        def built(builder: Any, *given: Any, **named: Any) -> Any:
            metadata = build(builder, *given, **named)
            self.built.update(dict.fromkeys(builder.layer_names, metadata))
            return metadata

        cudagraph_utils.prepare_inputs_to_capture = draft_utils.prepare_inputs_to_capture = remembered
        CPUAttentionMetadataBuilder.build = built
        self._capture(cudagraph_utils)

    def _capture(self, cudagraph_utils: Any) -> None:
        import torch

        from servespec.runtime.extension import install

        runner, modes = self.worker.model_runner, self.mode
        types = install.EngineTypes(
            manager=cudagraph_utils.CudaGraphManager, descriptor=cudagraph_utils.BatchExecutionDescriptor, mode=modes
        )
        both, query_len = modes.FULL_AND_PIECEWISE, 1 + DRAFTS
        speculator = runner.speculator
        for manager, mode, length, sizes, piecewise in (
            (runner.cudagraph_manager, both, query_len, SIZES, PIECEWISE_SIZES),
            (speculator.prefill_cudagraph_manager, both, query_len, SIZES, PIECEWISE_SIZES),
            (speculator.decode_cudagraph_manager, modes.FULL_DECODE_ONLY, 1, LATER_SIZES, []),
        ):
            manager.cudagraph_mode = mode
            full = [[count * length, count, length, None] for count in sizes]
            install._fill(manager, {"full": full, "piecewise": piecewise}, types)

        def capture(manager: Any, create_forward_fn: Callable[..., Any], _title: str = "") -> None:
            for descriptor in (one for listed in manager._capture_descs.values() for one in listed):
                if descriptor.cg_mode is modes.FULL:
                    create_forward_fn(descriptor, warmup=True)(modes.NONE)
                    manager.graphs[descriptor] = self._graph(create_forward_fn(descriptor, warmup=False))
            manager._graphs_captured = True

        patched = mock.patch.multiple(cudagraph_utils, has_compiled_submodule=lambda _: True)
        with patched, mock.patch.object(types.manager, "capture", capture), torch.inference_mode():
            runner.cudagraph_manager.capture(
                runner.model, runner.model_state, runner.input_buffers, None, runner.block_tables, runner.attn_groups,
                runner.kv_cache_config, use_aux_hidden_state_outputs=runner.use_aux_hidden_state_outputs,
            )  # fmt: skip
            speculator.capture()

    def _graph(self, forward: Callable[..., Any]) -> Any:
        captured = self.captured
        lengths = self.worker.model_runner.input_buffers.seq_lens
        key = object()

        def replay() -> None:
            # This backend makes its schedule anew; one that takes graphs keeps it where the graph reads it.
            for name, metadata in captured.items():
                metadata.scheduler_metadata = self.built[name].scheduler_metadata
            now = lengths.clone()
            if self.scenario == "stale":
                lengths.copy_(self.before.get(key, now))
            forward(self.mode.NONE)
            lengths.copy_(now)
            self.before[key] = now

        return SimpleNamespace(replay=replay)

    def answer(self, scenario: str) -> Any:
        if scenario == "timed":
            return self.timed()
        if scenario == "load aware":
            return self.load_followed()
        if scenario == "profiled":
            return self.timed(tokens=(12, 20), drafts=(0, 1, 2), served_only=True)
        if scenario == "timed fault":
            with self._fault():
                return self.timed()
        return self.replayed(scenario)

    def replayed(self, scenario: str) -> Any:
        from servespec.runtime.extension.replay import Result, replay

        self.scenario, result, written = scenario, Result(sha256="given"), []
        self.before.clear()
        with self._noise() if scenario == "noisy" else self._fault() if scenario == "fault" else mock.MagicMock():
            replay(self.worker, result, lambda one: written.append(len(one.batches)))
        assert written == sorted(written), written
        assert not [name for name in self.worker.model_runner.req_states.req_id_to_index if "_servespec_" in name]
        return result.to_json()

    def timed(self, tokens: tuple[int, ...] = (2, 12, 20), **wanted: Any) -> Any:
        from servespec.runtime.extension.report import managers_of_runner
        from servespec.runtime.extension.step_times import StepTimes, time_steps
        from servespec.runtime.extension.step_times_batches import Wanted

        runner, written = self.worker.model_runner, list[int]()
        before = [manager._candidates for manager in managers_of_runner(runner)]
        result = StepTimes(sha256="given", wanted=Wanted(requests=(1, 2, 3), tokens=tokens, repeats=3, **wanted))
        time_steps(self.worker, result, lambda one: written.append(len(one.batches)))
        assert written == sorted(written), written
        assert [id(manager._candidates) for manager in managers_of_runner(runner)] == list(map(id, before))
        assert "propose" not in vars(runner.speculator)
        assert not [name for name in runner.req_states.req_id_to_index if "_servespec_" in name]
        return result.to_json()

    def load_followed(self) -> Any:
        """Tokens of 1, 4 and 1 requests with a fixed K, then with a switch at 3 requests, and what the manager saw."""
        from servespec.runtime.extension.load_aware import follow_load

        runner, loads = self.worker.model_runner, (1, 4, 1)
        fixed = [self._answered(count) for count in loads]
        seen: list[tuple[str, int]] = []
        found: dict[str, Any] = {}
        with self._adaptive_manager(seen) as manager:
            switch = follow_load(runner, 3, 2, frozenset({3, 12}))
            found["priced"] = self._priced(manager)
            for drafts in ("all", "none"):
                manager.cost_tables = self._costs(of_drafts=drafts == "none")
                del seen[:]
                answers = [self._answered(count, seen) for count in loads]
                found[drafts] = {"same": answers == fixed, "seen": list(seen)}
            found["steps"] = [switch.fixed_steps, switch.adaptive_steps]
        return found

    def _answered(self, requests: int, seen: list[tuple[str, int]] | None = None) -> list[list[int]]:
        """The tokens that follow prompts of different lengths, likeliest first."""
        from vllm import SamplingParams

        if seen is not None:
            seen.append(("load", requests))
        prompts = [
            {"prompt_token_ids": [(7 * place + at) % 120 + 1 for at in range(4 + place)]} for place in range(requests)
        ]
        params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, detokenize=False)
        return [list(one.outputs[0].token_ids) for one in self.llm.generate(prompts, params, use_tqdm=False)]

    def _priced(self, manager: Any) -> Any:
        """What the engine's own steps of a profile were asked to be, how many it timed, and which costs came of it."""
        import torch

        runner, asked = self.worker.model_runner, []
        with runner.step_timing.collect() as timed, torch.inference_mode():
            for batch in manager.batches_to_profile([3, 9, 12]):
                asked.append([batch["num_tokens"], batch["context_len"]])
                runner._dummy_run(**batch)
        manager.set_initial_cost_curves([replace(sample, full_cudagraph=True) for sample in timed])
        return {
            "asked": asked,
            "timed": len(timed),
            "requests": [one.num_reqs for one in timed],
            "ms_per_cached_token": manager.servespec_ms_per_cached_token,
            "costs": [len(table) for table in manager.cost_tables],
        }

    def _costs(self, *, of_drafts: bool) -> Any:
        """Cost tables by which all drafts are worth verifying, or none."""
        import numpy as np

        runner = self.worker.model_runner
        tokens = np.arange(runner.max_num_tokens + 1, dtype=np.float64)
        return np.zeros(runner.max_num_reqs + 1), 1.0 + tokens * (100.0 if of_drafts else 0.0)

    @contextmanager
    def _adaptive_manager(self, seen: list[tuple[str, int]]) -> Iterator[Any]:
        """The engine's own manager, on the CPU; each call of a step is noted with its number of requests."""
        import torch
        from vllm.v1.worker.gpu.spec_decode import adaptive_verification as engines

        runner = self.worker.model_runner
        done = SimpleNamespace(
            synchronize=lambda: None, record=lambda *_: None, wait_stream=lambda _: None, elapsed_time=lambda _: 1.0
        )
        streams = mock.patch.multiple(
            torch.cuda, Stream=lambda *_: done, Event=lambda **_: done, current_stream=lambda *_: done
        )
        with streams, mock.patch.object(engines, "stream", mock.MagicMock()):
            manager = engines.AdaptiveVerificationManager(
                runner.req_states, runner.input_buffers.query_start_loc, 1, 1 << 20
            )
            manager._cudagraph_limit = 0
            records = manager.record_confidences

            def get_num_tokens(tokens: Any, drafts: Any) -> int:
                """By the method of the class, which a switch replaces."""
                seen.append(("chooses", len(tokens)))
                return int(type(manager).get_num_tokens(manager, tokens, drafts))

            def record_confidences(probabilities: Any, batch: Any) -> None:
                seen.append(("records", batch.num_reqs))
                records(probabilities, batch)

            manager.get_num_tokens, manager.record_confidences = get_num_tokens, record_confidences
            runner.adaptive_verification = manager
            runner.rejection_sampler.enable_adaptive_verification = True
            runner.speculator.draft_token_confidence_probs.fill_(0.5)
            yield manager
        runner.adaptive_verification = None
        runner.rejection_sampler.enable_adaptive_verification = False

    @contextmanager
    def _noise(self) -> Iterator[None]:
        """The target's last layer does not give the same twice."""
        import torch

        layer = self.worker.model_runner.model.model.norm
        hook = layer.register_forward_hook(lambda _module, _given, out: tuple(one + torch.rand(()) for one in out))
        yield
        hook.remove()

    @contextmanager
    def _fault(self) -> Iterator[None]:
        """The graph of three requests cannot be replayed."""
        graphs = self.worker.model_runner.cudagraph_manager.graphs
        broken = next(one for one in graphs if one.num_reqs == 3)

        def fail() -> None:
            raise RuntimeError("a graph is broken\nwith advice")

        with mock.patch.dict(graphs, {broken: SimpleNamespace(replay=fail)}):
            yield


if __name__ == "__main__":
    main()
