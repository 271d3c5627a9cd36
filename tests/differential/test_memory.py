"""The groups and blocks of the KV cache, against the engine's own functions (``real_cache``)."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from servespec.compiler.memory.cache_terms import CacheTerms, StateTypes
from servespec.compiler.memory.compressed_layers import packs_blocks, window_layer
from servespec.compiler.memory.kv_cache import KvCache, KvLayer, KvRequest, LayerKind
from servespec.compiler.memory.kv_groups import kv_cache_of
from servespec.compiler.memory.kv_layers import target_caches
from servespec.compiler.memory.line import Holder
from servespec.compiler.memory.split import Split
from servespec.compiler.model import model_of
from servespec.units import Bytes, Tokens
from tests.differential import engine_oracle as oracle
from tests.differential.engine_process import PYTHON, run

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PYTHON is None, reason="no interpreter with torch"),
]
roots = pytest.mark.parametrize("root", oracle.available_roots(), ids=lambda root: root.name)

Case = dict[str, Any]
_WINDOWS = (LayerKind.WINDOW, LayerKind.LATENT_WINDOW)


def answer_of(found: KvCache | str) -> Case:
    if isinstance(found, str):
        return {"refused": True}
    return {"groups": len(found.groups), "block_bytes": found.block_bytes, "request_blocks": found.request_blocks}


def compared(root: Path, cases: list[Case], ours: list[KvCache | str]) -> list[Case]:
    answers: list[Case] = run("real_cache.py", root, json.dumps(cases))
    for asked, answer, own in zip(cases, answers, ours, strict=True):
        expected = {"refused": True} if "refused" in answer else answer
        assert answer_of(own) == expected, (asked, own, answer)
    return answers


def request_of(case: Case) -> KvRequest:
    return KvRequest(
        max_model_len_tokens=Tokens(case["length"]),
        in_flight_tokens=Tokens(case["in_flight"]),
        retained_tokens=case.get("retained", 0),
    )


def frame(rng: random.Random) -> Case:
    return {
        "length": rng.randint(1, 50_000),
        "in_flight": rng.randint(1, 20_000),
        "keeps_windows": True,
        "packs": False,
    }


# Layers of every kind, one table of blocks

_ATTENTION = [("full", 256, None), ("full", 512, None), ("window", 256, 128), ("window", 384, 128)]
_MIXED = [*_ATTENTION, ("latent", 256, None), ("latent window", 512, 256), ("state", 8192, 1), ("state", 12288, 3)]


def layer_case(rng: random.Random) -> Case:
    """A pattern as models have them, repeated, and up to two layers of a drafter."""
    kinds = _MIXED if rng.random() < 0.5 else _ATTENTION
    block = rng.choice([16, 32, 64])
    pattern = rng.choices(kinds, k=rng.randint(1, 3)) * rng.randint(1, 12)
    listed = [*pattern, *rng.choices(_ATTENTION[:2], k=rng.randint(0, 2))]
    layers = [(kind, block, size if kind == "state" else size * block, more) for kind, size, more in listed]
    stages = rng.choice([1, 1, 2, 4])
    workers = sorted(rng.choices(range(stages), k=len(layers)))
    return frame(rng) | {
        "layers": layers,
        "keeps_windows": rng.random() < 0.8,
        "packs": rng.random() < 0.3,
        "workers": workers,
        "retained": rng.choice([0, 0, 2, 200]),
    }


def cache_of_layers(case: Case) -> KvCache | str:
    layers = tuple(
        KvLayer(
            holder=Holder.TARGET,
            kind=LayerKind(kind),
            block_tokens=block,
            page_bytes=Bytes(page),
            window_tokens=more if kind in _WINDOWS else None,
            state_blocks=more if kind == "state" else 0,
            content=(page,),
            stage=stage,
        )
        for (kind, block, page, more), stage in zip(case["layers"], case["workers"], strict=True)
    )
    return kv_cache_of(
        layers,
        request_of(case),
        keeps_windows=case["keeps_windows"],
        packs_blocks=case["packs"],
        stage=max(case["workers"]),
    )


@roots
def test_groups_and_blocks_are_the_engines(root: Path) -> None:
    rng = random.Random(4)  # noqa: S311
    cases = [layer_case(rng) for _ in range(900)]

    answers = compared(root, cases, [cache_of_layers(case) for case in cases])

    taken = [answer for answer in answers if "refused" not in answer]
    assert max(answer["groups"] for answer in taken) > 3
    assert 20 < len(cases) - len(taken) < 300
    assert sum(case["packs"] for case in cases) > 200


# Compressed contexts


def compressed_case(rng: random.Random) -> Case:
    ratios = [0] * rng.randint(0, 3) + rng.choices([0, 4, 128], [1, 5, 5], k=rng.randint(1, 60))
    return frame(rng) | {
        "packs": 4 in ratios,
        "block": 256,
        "compressed": {
            "ratios": ratios,
            "drafter_layers": rng.choice([0, 1, 3]),
            "head": 512,
            "index": 128,
            "window": rng.choice([64, 128, 512]),
            "four_bits": rng.random() < 0.5,
        },
    }


def cache_of_compressed(case: Case) -> KvCache | str:
    sizes = case["compressed"]
    model = model_of(
        {
            "architectures": ["DeepseekV4ForCausalLM"],
            "model_type": "deepseek_v4",
            "num_hidden_layers": len(sizes["ratios"]),
            "compress_ratios": sizes["ratios"],
            "head_dim": sizes["head"],
            "index_head_dim": sizes["index"],
            "sliding_window": sizes["window"],
        },
        "0.33.0",
    )
    terms = CacheTerms(
        split=Split(),
        element_bytes=1,
        model_bytes=2,
        block_tokens=case["block"],
        context_tokens=case["length"],
        index_type="mxfp4" if sizes["four_bits"] else "auto",
    )
    target, window = target_caches(model, terms), window_layer(model, terms, Holder.DRAFTER)
    assert not isinstance(target, str), target
    assert isinstance(window, KvLayer), window
    layers = (*(layer for caches in target.layers for layer in caches), *(window,) * sizes["drafter_layers"])
    return kv_cache_of(layers, request_of(case), packs_blocks=packs_blocks(model))


@roots
def test_compressed_contexts_are_the_engines(root: Path) -> None:
    rng = random.Random(5)  # noqa: S311
    cases = [compressed_case(rng) for _ in range(300)]
    cases = [case for case in cases if any(case["compressed"]["ratios"])]

    answers = compared(root, cases, [cache_of_compressed(case) for case in cases])

    assert len({answer["groups"] for answer in answers if "refused" not in answer}) > 3
    assert sum("refused" in answer for answer in answers) < 20


# Recurrent states


def hybrid_case(rng: random.Random) -> Case:
    ranks = rng.choice([1, 2, 4, 8])
    architecture, config, checkpoints = rng.choice(_HYBRIDS)(rng)
    latent = architecture == "KimiLinearForCausalLM"
    attends = architecture not in ("MambaForCausalLM", "Mamba2ForCausalLM")
    mode = rng.choice(["none", "align"]) if attends else "none"
    aligned = "linear_num_key_heads" in config and mode == "align"
    kv_heads = rng.choice([2, 8, 16])
    return frame(rng) | {
        "drafts": rng.choice([0, 0, 1, 3]) if attends else 0,
        "ranks": ranks,
        "block": rng.choice([16, 32, 64]),
        "mode": mode,
        "recurrent": rng.choice(["auto", "auto", "float32"]),
        "hybrid": {
            "architecture": architecture,
            "config": config,
            "latent": latent,
            "attends": attends,
            "kv_heads": 1 if latent else max(1, kv_heads // ranks),
            "all_kv_heads": kv_heads,
            "head": 576 if latent else rng.choice([64, 128, 256]),
            "kinds": _kinds(architecture, rng),
            "checkpoint_tokens": 64 if aligned else None,
            "checkpoints": checkpoints if mode == "align" else 0,
        },
    }


def _kinds(architecture: str, rng: random.Random) -> list[tuple[bool, bool]]:
    if architecture.startswith("Mamba"):
        return [(False, True)] * rng.randint(1, 64)
    if architecture == "FalconH1ForCausalLM":
        return [(True, True)] * rng.randint(1, 48)
    every = rng.randint(2, 5)
    return [(index % every == 0, index % every != 0) for index in range(every * rng.randint(1, 12))]


def _delta_net(rng: random.Random) -> tuple[str, Case, int]:
    heads = 8 * rng.randint(1, 4)
    sizes = {
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads * rng.choice([1, 2]),
        "linear_key_head_dim": rng.choice([64, 128]),
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    return rng.choice(["Qwen3NextForCausalLM", "OlmoHybridForCausalLM"]), sizes, 1


def _kimi(rng: random.Random) -> tuple[str, Case, int]:
    sizes = {"num_heads": 8 * rng.randint(1, 8), "head_dim": 128, "short_conv_kernel_size": 4}
    return "KimiLinearForCausalLM", {"linear_attn_config": sizes}, 0


def _mamba2(rng: random.Random) -> tuple[str, Case, int]:
    name = rng.choice(
        ["NemotronHForCausalLM", "GraniteMoeHybridForCausalLM", "FalconH1ForCausalLM", "Mamba2ForCausalLM"]
    )
    heads, width, groups, state = 8 * rng.randint(1, 16), 64, rng.choice([1, 8]), rng.choice([128, 256])
    sizes: dict[str, Case] = {
        "NemotronHForCausalLM": {
            "mamba_num_heads": heads, "mamba_head_dim": width, "n_groups": groups, "ssm_state_size": state,
            "conv_kernel": 4,
        },
        "Mamba2ForCausalLM": {
            "expand": 2, "hidden_size": heads * width // 2, "num_heads": heads, "head_dim": width, "n_groups": groups,
            "state_size": state, "conv_kernel": 4,
        },
    }  # fmt: skip
    common = {
        "mamba_expand": 2, "hidden_size": heads * width // 2, "mamba_d_ssm": heads * width, "mamba_n_heads": heads,
        "mamba_d_head": width, "mamba_n_groups": groups, "mamba_d_state": state, "mamba_d_conv": 4,
    }  # fmt: skip
    return name, sizes.get(name, common), 1


def _mamba1(rng: random.Random) -> tuple[str, Case, int]:
    hidden, state = 256 * rng.randint(1, 16), rng.choice([8, 16])
    if rng.random() < 0.5:
        return "MambaForCausalLM", {"intermediate_size": 2 * hidden, "state_size": state, "conv_kernel": 4}, 0
    jamba = {"mamba_expand": 2, "hidden_size": hidden, "mamba_d_state": state, "mamba_d_conv": 4}
    return "JambaForCausalLM", jamba, 0


def _short_conv(rng: random.Random) -> tuple[str, Case, int]:
    width = 256 * rng.randint(1, 8)
    if rng.random() < 0.5:
        return "Lfm2ForCausalLM", {"conv_dim": width, "conv_L_cache": 3}, 0
    return "Lfm2MoeForCausalLM", {"hidden_size": width, "conv_L_cache": 3}, 0


_HYBRIDS = (_delta_net, _kimi, _mamba2, _mamba1, _short_conv)


def config_of(case: Case) -> Case:
    """A config.json with the kinds of layers that the case has, in the notation of its architecture."""
    sizes = case["hybrid"]
    kinds, config = sizes["kinds"], dict(sizes["config"])
    names = ["full_attention" if attends else "linear_attention" for attends, _ in kinds]
    order: Case = {"layer_types": names}
    if sizes["latent"]:
        states = [index + 1 for index, (_, recurs) in enumerate(kinds) if recurs]
        config["linear_attn_config"] = {**config["linear_attn_config"], "kda_layers": states}
        order = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "model_type": "kimi_linear"}
    elif sizes["architecture"] == "NemotronHForCausalLM":
        order = {"hybrid_override_pattern": "".join("*" if attends else "M" for attends, _ in kinds)}
    elif sizes["architecture"] == "GraniteMoeHybridForCausalLM":
        order = {"layers_block_type": ["attention" if attends else "mamba" for attends, _ in kinds]}
    elif sizes["architecture"] == "JambaForCausalLM":
        period = next((index for index, (attends, _) in enumerate(kinds[1:], 1) if attends), len(kinds))
        order = {"attn_layer_period": period, "attn_layer_offset": 0}
    elif sizes["architecture"] in ("FalconH1ForCausalLM", "MambaForCausalLM", "Mamba2ForCausalLM"):
        order = {}
    elif sizes["architecture"].startswith("Lfm2"):
        order = {"layer_types": ["full_attention" if attends else "conv" for attends, _ in kinds]}
    return {
        "architectures": [sizes["architecture"]],
        "num_hidden_layers": len(kinds),
        "num_attention_heads": 16,
        "num_key_value_heads": sizes["all_kv_heads"],
        "head_dim": sizes["head"],
        **config,
        **order,
    }


def cache_of_hybrid(case: Case) -> KvCache | str:
    terms = CacheTerms(
        split=Split(tensor=case["ranks"]),
        element_bytes=2,
        model_bytes=2,
        block_tokens=case["block"],
        context_tokens=case["length"],
        drafts=case["drafts"],
        keeps_prefixes=case["mode"] == "align",
        states=StateTypes(recurrent=case["recurrent"]),
    )
    target = target_caches(model_of(config_of(case), "0.33.0"), terms)
    if isinstance(target, str):
        return target
    return kv_cache_of(tuple(layer for caches in target.layers for layer in caches), request_of(case))


@pytest.mark.parametrize("root", [root for root in oracle.available_roots() if root.name.endswith("0.33.0")])
def test_states_and_attention_beside_them_are_the_engines(root: Path) -> None:
    rng = random.Random(6)  # noqa: S311
    cases = [hybrid_case(rng) for _ in range(600)]

    answers = compared(root, cases, [cache_of_hybrid(case) for case in cases])

    assert {case["hybrid"]["architecture"] for case in cases} >= {
        "Qwen3NextForCausalLM", "KimiLinearForCausalLM", "NemotronHForCausalLM", "JambaForCausalLM", "Lfm2ForCausalLM",
    }  # fmt: skip
    assert sum("refused" in answer for answer in answers) < 150
