"""Names that may have been meant, and silence where none was."""

import pytest

from servespec.compiler.facts.devices import DEVICES
from servespec.schema.nearest import nearest, nearest_by_words, slips_between

FIELDS = (
    "model", "scheduler", "speculative", "memory", "serve", "args", "env", "host", "port", "method",
    "backend", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization",
    "block_size", "num_speculative_tokens", "quantization", "parallel", "eagle", "eagle3", "mtp",
    "max_prefill_cudagraph_capture_tokens", "prefill_cudagraph_capture_token_sizes",
    "max_decode_cudagraph_capture_requests", "decode_cudagraph_capture_request_sizes",
    "max_decode_cudagraph_capture_tokens", "cudagraph_capture_sizes", "max_cudagraph_capture_size",
)  # fmt: skip


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("max-num-seqs", "max_num_seqs"),
        ("maxNumSeqs", "max_num_seqs"),
        ("MAX_NUM_SEQS", "max_num_seqs"),
        ("max_num_seq", "max_num_seqs"),
        ("models", "model"),
        ("modle", "model"),
        ("prot", "port"),
        ("agrs", "args"),
        ("memroy", "memory"),
        ("parralel", "parallel"),
        ("quantisation", "quantization"),
        ("gpu_mem_utilization", "gpu_memory_utilization"),
        ("num_spec_tokens", "num_speculative_tokens"),
        ("max_decode_cudagraph_capture_request", "max_decode_cudagraph_capture_requests"),
        ("cudagraph_sizes", "cudagraph_capture_sizes"),
        ("eagle_3", "eagle3"),
    ],
)
def test_the_name_meant_comes_first(written: str, meant: str) -> None:
    assert nearest(written, FIELDS)[:1] == (meant,)


@pytest.mark.parametrize("written", ["", "a", "id", "xyzzy", "foo", "---", "漢字", "sport_team", "x" * 10_000])
def test_nonsense_gives_nothing(written: str) -> None:
    assert nearest(written, FIELDS) == ()


def test_the_limit_cuts_the_list_and_leaves_the_best() -> None:
    three = nearest("max_decode_cudagraph_capture", FIELDS)

    assert len(three) == 3
    assert nearest("max_decode_cudagraph_capture", FIELDS, limit=1) == three[:1]


def test_ranks_go_spelling_number_slips() -> None:
    assert nearest("tokenSize", ["token_sizes", "tokens_ize", "token_size", "token_sizo"], limit=4) == (
        "token_size",
        "tokens_ize",
        "token_sizes",
        "token_sizo",
    )


def test_the_order_of_candidates_does_not_matter() -> None:
    assert nearest("backend", ["backent", "backenf"]) == nearest("backend", ["backenf", "backent"])


def test_the_name_itself_is_no_suggestion() -> None:
    assert nearest("port", ["port", "ports"]) == ("ports",)


@pytest.mark.parametrize(
    ("first", "second", "slips"),
    [
        ("", "", 0),
        ("port", "", 4),
        ("port", "prot", 1),
        ("port", "sport", 1),
        ("port", "pert", 1),
        ("ab", "cd", 2),
    ],
)
def test_slips(first: str, second: str, slips: int) -> None:
    assert slips_between(first, second) == slips
    assert slips_between(second, first) == slips


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NVIDIA H200", "h200"),
        ("h200_sxm", "h200"),
        ("H100-SXM5-80GB", "h100"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("GB200-NVL72", "gb200"),
        ("b200-sxm", "b200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("a100", "a100-80"),
        ("l40", "l40s"),
        ("4090", "rtx-4090"),
        ("RTX PRO 6000 Blackwell", "rtx-pro-6000"),
        ("h20O", "h200"),
    ],
)
def test_a_gpu_by_another_of_its_names(written: str, meant: str) -> None:
    assert nearest_by_words(written, DEVICES)[:1] == (meant,)


@pytest.mark.parametrize("written", ["h9000", "hopper", "cuda", "h", "", "---"])
def test_what_is_no_gpu_has_no_other_name(written: str) -> None:
    assert nearest_by_words(written, DEVICES) == ()
