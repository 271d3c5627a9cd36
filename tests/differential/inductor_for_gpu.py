"""Prints the code that Inductor writes for pieces of a decoder on an H200, on a machine without a GPU.

usage: python inductor_for_gpu.py        -> a JSON object: the code by the piece and its widths

Tensors are fake and on a device that is not there, so that buffers come and go as on a GPU, where kernels fuse, reduce
and write in place otherwise than on a CPU.  Nothing is compiled or run.  What asks for the device is answered here, and
answers are remembered inside torch, so that this is a program of its own and not a function of the tests.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

_TOKENS = 8192
_H200 = {
    "name": "NVIDIA H200", "major": 9, "minor": 0, "multi_processor_count": 132, "warp_size": 32,
    "total_memory": 150109880320, "max_threads_per_multi_processor": 2048, "regs_per_multiprocessor": 65536,
    "L2_cache_size": 50 << 20, "shared_memory_per_block_optin": 232448, "shared_memory_per_multiprocessor": 233472,
    "gcnArchName": "",
}  # fmt: skip


@dataclass(frozen=True)
class Widths:
    """In elements of a token."""

    hidden: int
    query: int
    key: int
    inner: int
    head: int = 128

    @property
    def projected(self) -> int:
        return self.query + 2 * self.key


WIDTHS = {
    "as wide as its queries": Widths(hidden=4096, query=4096, key=1024, inner=12288),
    "as wide as its keys": Widths(hidden=1024, query=2048, key=1024, inner=3072),
    "neither": Widths(hidden=2048, query=4096, key=512, inner=6144),
    "a rank's part": Widths(hidden=4096, query=2048, key=512, inner=6144),
}
"""Qwen3-8B, Qwen3-0.6B, one with the attention of Qwen3-30B-A3B, and one of two ranks of the first."""


# The pieces in torch


def norm(x: Any, weight: Any, residual: Any = None) -> Any:
    """As an operator of its own, which is lowered once the graph has its order.

    Source: vllm/compilation/passes/ir/lowering_pass.py: VllmIRLoweringPass.
    """
    import torch

    operators = torch.ops.servespec_tests
    return operators.norm(x, weight) if residual is None else operators.add_and_norm(x, weight, residual)


def lowered_norm(x: Any, weight: Any) -> Any:
    """Source: vllm/ir/ops/layernorm.py: rms_norm."""
    return _normed(x.float(), x.dtype, weight)


def lowered_add_and_norm(x: Any, weight: Any, residual: Any) -> tuple[Any, Any]:
    """Source: vllm/ir/ops/layernorm.py: fused_add_rms_norm."""
    summed = x.float() + residual.float()
    residual = summed.to(x.dtype)
    return _normed(summed, x.dtype, weight), residual


def _normed(x: Any, kind: Any, weight: Any) -> Any:
    import torch

    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).to(kind) * weight


def turned(x: Any, positions: Any, cache: Any) -> Any:
    """Source: vllm/model_executor/layers/rotary_embedding: RotaryEmbedding.forward_native."""
    import torch

    found = torch.ops.aten.index.Tensor(cache, [positions])
    cos, sin = (part.unsqueeze(-2).to(x.dtype) for part in found.chunk(2, -1))
    one, other = x.chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1)


def projected(x: Any, of: Widths, weight: Any, positions: Any, cache: Any, norms: Any = None) -> Any:
    """Queries, keys, values and the buffer for what attention will write."""
    import torch

    parts = (x @ weight).split([of.query, of.key, of.key], -1)
    query, key, value = (part.view(x.shape[0], -1, of.head) for part in parts)
    if norms is not None:
        query, key = norm(query, norms[0]), norm(key, norms[1])
    output = torch.empty(x.shape[0], of.query, dtype=x.dtype, device=x.device)
    return turned(query, positions, cache), turned(key, positions, cache), value, output


def mlp(x: Any, of: Widths, wide: Any, down: Any) -> Any:
    import torch

    gate, up = (x @ wide).split([of.inner, of.inner], -1)
    return (torch.nn.functional.silu(gate) * up) @ down


def on_gpu(*shape: Any, dtype: Any = None) -> Any:
    import torch

    return torch.empty(*shape, device="cuda", dtype=dtype or torch.bfloat16)


Piece = tuple[Callable[..., Any], Callable[[Any], list[Any]]]
"""And its arguments for a number of tokens."""


def between_layers(of: Widths, *, is_read: bool = False) -> Piece:
    """From one attention to the next; ``is_read`` where the drafter reads the input of the layer.

    Source: vllm/model_executor/models/qwen2.py: Qwen2Model.forward.
    """

    def piece(attended: Any, residual: Any, positions: Any, *weights: Any) -> Any:
        out, first, wide, down, second, qkv, of_query, of_key, cache = weights
        x, residual = norm(attended @ out, first, residual)
        x = mlp(x, of, wide, down)
        auxiliary = (x + residual,) if is_read else ()
        x, residual = norm(x, second, residual)
        return (*projected(x, of, qkv, positions, cache, (of_query, of_key)), residual, *auxiliary)

    def arguments(tokens: Any) -> list[Any]:
        import torch

        h, q = of.hidden, of.query
        weights = [on_gpu(q, h), on_gpu(h), on_gpu(h, 2 * of.inner), on_gpu(of.inner, h), on_gpu(h)]
        weights += [on_gpu(h, of.projected), on_gpu(of.head), on_gpu(of.head)]
        weights.append(on_gpu(4096, of.head, dtype=torch.float32))
        return [on_gpu(tokens, q), on_gpu(tokens, h), on_gpu(tokens, dtype=torch.int64), *weights]

    return piece, arguments


def before_first_attention(of: Widths) -> Piece:
    """Source: vllm/model_executor/models/qwen2.py: Qwen2Model.forward; qwen3.py: Qwen3Attention.forward."""
    import torch

    def piece(tokens: Any, positions: Any, *weights: Any) -> Any:
        embedding, first, qkv, of_query, of_key, cache = weights
        residual = torch.nn.functional.embedding(tokens, embedding)
        return (*projected(norm(residual, first), of, qkv, positions, cache, (of_query, of_key)), residual)

    def arguments(tokens: Any) -> list[Any]:
        weights = [on_gpu(151936, of.hidden), on_gpu(of.hidden), on_gpu(of.hidden, of.projected)]
        weights += [on_gpu(of.head), on_gpu(of.head), on_gpu(4096, of.head, dtype=torch.float32)]
        return [on_gpu(tokens, dtype=torch.int32), on_gpu(tokens, dtype=torch.int64), *weights]

    return piece, arguments


def draft_head_before_attention(of: Widths) -> Piece:
    """Source: vllm/model_executor/models/llama_eagle3.py: LlamaDecoderLayer.forward."""
    import torch

    def piece(tokens: Any, hidden: Any, positions: Any, *weights: Any) -> Any:
        embedding, first, second, qkv, cache = weights
        embedded = norm(torch.nn.functional.embedding(tokens, embedding), first)
        return projected(torch.cat([embedded, norm(hidden, second)], -1), of, qkv, positions, cache)

    def arguments(tokens: Any) -> list[Any]:
        h = of.hidden
        weights = [on_gpu(151936, h), on_gpu(h), on_gpu(h), on_gpu(2 * h, of.projected)]
        weights.append(on_gpu(4096, of.head, dtype=torch.float32))
        inputs = [on_gpu(tokens, dtype=torch.int32), on_gpu(tokens, h), on_gpu(tokens, dtype=torch.int64)]
        return [*inputs, *weights]

    return piece, arguments


# Inductor


def register_norms() -> None:
    import torch

    library = torch.library.Library("servespec_tests", "FRAGMENT")
    library.define("norm(Tensor x, Tensor weight) -> Tensor")
    library.define("add_and_norm(Tensor x, Tensor weight, Tensor residual) -> (Tensor, Tensor)")
    library.impl("norm", lambda x, _: torch.empty_like(x), "Meta")
    library.impl("add_and_norm", lambda x, *_: (torch.empty_like(x), torch.empty_like(x)), "Meta")
    _KEPT.append(library)


_KEPT: list[Any] = []
"""A library takes its operators with it."""


def lower_norms(graph: Any) -> None:
    import torch
    from torch._inductor.pattern_matcher import CallFunctionVarArgs, PatternMatcherPass, register_graph_pattern

    operators, found = torch.ops.servespec_tests, PatternMatcherPass("norms")
    natives = {operators.norm.default: lowered_norm, operators.add_and_norm.default: lowered_add_and_norm}

    def lower(match: Any, *_arguments: Any, **_named: Any) -> None:
        (node,) = match.nodes
        match.replace_by_example(natives[node.target], list(node.args), run_functional_passes=False)

    register_graph_pattern(CallFunctionVarArgs(list(natives)), pass_dict=found)(lower)
    found.apply(graph)


def pretend_to_have_a_gpu() -> None:
    """Everything that Inductor asks of a device before it writes code for it."""
    import torch
    import torch._dynamo.device_interface as interface
    import torch._inductor.scheduler as scheduler
    import torch._inductor.utils as inductor
    import torch.utils._triton as triton

    properties = SimpleNamespace(**_H200)
    answers: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "is_available": True, "current_device": 0, "device_count": 1, "_lazy_init": None,
            "get_device_capability": (9, 0), "get_device_properties": properties,
            "_get_device_properties": properties,
        },
        triton: {"has_triton": True, "triton_hash_with_backend": "none"},
        inductor: {"has_triton": True},
        scheduler: {"has_triton": True},
    }  # fmt: skip
    for place, said in answers.items():
        for name, value in said.items():
            setattr(place, name, _always(value))
    torch.version.cuda = "13.0"
    for name, value in {"is_available": True, "get_device_properties": properties}.items():
        setattr(interface.CudaInterface, name, staticmethod(_always(value)))


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_arguments, **_named: value


def written_for_a_gpu(piece: Callable[..., Any], arguments_of: Callable[[Any], list[Any]]) -> str:
    """The code that takes buffers and calls kernels, for any number of tokens."""
    import torch
    from torch._dynamo.source import ConstantSource
    from torch._inductor.compile_fx import fake_tensor_prop
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env, source = ShapeEnv(), ConstantSource("tokens")
    with FakeTensorMode(shape_env=env) as mode, torch.inference_mode():
        symbol = env.create_symbol(_TOKENS, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        arguments = arguments_of(env.create_symintnode(symbol, hint=_TOKENS, source=source))
        traced = make_fx(piece, tracing_mode="real", decomposition_table=select_decomp_table())(*arguments)
        view_to_reshape(traced)
        fake_tensor_prop(traced, arguments, True)
        with V.set_fake_mode(mode):
            post_grad_passes(traced, is_inference=True)
            lower_norms(traced.graph)
            traced.recompile()
        graph = GraphLowering(traced, example_inputs=arguments, shape_env=env, is_inference=True)
        with V.set_graph_handler(graph), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            graph.run(*arguments)
            code, _ = graph.codegen()
    text: str = code.value
    return text[text.index("def call(") :]


def written() -> Iterator[tuple[str, str]]:
    for name, of in WIDTHS.items():
        yield f"before the first attention, {name}", written_for_a_gpu(*before_first_attention(of))
        yield f"between layers, {name}", written_for_a_gpu(*between_layers(of))
        yield f"before a layer that is read, {name}", written_for_a_gpu(*between_layers(of, is_read=True))
        yield f"draft head, {name}", written_for_a_gpu(*draft_head_before_attention(of))


if __name__ == "__main__":
    pretend_to_have_a_gpu()
    register_norms()
    print(json.dumps(dict(written())))
