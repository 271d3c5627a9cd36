"""What an engine takes over from whoever starts it: variables that change no plan, and some seconds to stop."""

from typing import Final

KEPT_ENGINE_VARIABLES: Final = frozenset(
    {
        "VLLM_API_KEY",
        "VLLM_ASSETS_CACHE",
        "VLLM_CACHE_ROOT",
        "VLLM_CONFIG_ROOT",
        "VLLM_CONFIGURE_LOGGING",
        "VLLM_DO_NOT_TRACK",
        "VLLM_HOST_IP",
        "VLLM_LOGGING_COLOR",
        "VLLM_LOGGING_LEVEL",
        "VLLM_NO_USAGE_STATS",
        "VLLM_PORT",
        "VLLM_RPC_BASE_PATH",
    }
)
"""Settings of vLLM that a shell may give without changing what was planned; any other comes from the spec."""

WITHHELD_VARIABLES: Final = frozenset(
    {"PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONBREAKPOINT", "PYTHONTRACEMALLOC", "PYTHONPROFILEIMPORTTIME"}
)
"""A Python that stops at a prompt, traces itself or runs a start-up file is not the engine that was planned."""

SECRET_VARIABLES: Final = {"api_key": "VLLM_API_KEY", "hf_token": "HF_TOKEN"}
"""Where the engine reads a secret from that must not stand in a spec, by the flag that would hold it."""

STOP_SECONDS: Final = 20
"""Chosen: how long an engine that was asked to stop may take to tidy up before it is killed."""


def is_kept(name: str) -> bool:
    """Whether an engine may have a variable of the shell that starts it."""
    if name.startswith("VLLM_"):
        return name in KEPT_ENGINE_VARIABLES
    return name not in WITHHELD_VARIABLES
