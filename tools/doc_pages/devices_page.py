"""docs/reference/devices.md: the device table, with where each row comes from."""

from doc_pages.markdown import code, page, sentences, table
from servespec.compiler.facts.batch_defaults import batch_tier
from servespec.compiler.facts.devices import DEVICE_FACTS, GIB_BYTES, Device, is_cpu, is_sm100
from servespec.compiler.facts.engine_fields import versions
from servespec.provenance import Sourced


def devices_page() -> str:
    version = versions()[-1]
    return page(
        "Devices",
        sentences(
            "`hardware.gpu` takes these names. Memory is what torch reports, not the size on the box. "
            "Wide grids are the split prefill and decode grids as defaults, on compute capability 10.x. "
            f"Requests and tokens are the API server's default limits of one step in vLLM {version}. "
            "Any other machine is described by a file: `hardware: {gpu: {device: FILE}}`."
        ),
        table(
            ("name", "reported as", "capability", "memory", "SMs", "wide grids", "requests", "tokens"),
            [_row(fact.value, version) for fact in DEVICE_FACTS],
        ),
        "## Sources",
        table(("name", "source", "version", "where", "quote", "note"), [_source(fact) for fact in DEVICE_FACTS]),
    )


def _row(device: Device, version: str) -> tuple[str, ...]:
    major, minor = device.compute_capability
    limits = batch_tier(device, 1, version).defaults
    shared = "the machine's" if device.unified_memory else ""
    gib = device.total_memory_bytes / GIB_BYTES
    memory = shared if is_cpu(device) else f"{device.total_memory_bytes:,} B ({gib:.2f} GiB) {shared}"
    return (
        code(device.name),
        device.device_name,
        "" if is_cpu(device) else f"{major}.{minor}",
        memory.strip(),
        "" if is_cpu(device) else str(device.sm_count),
        "yes" if is_sm100(device) else "no",
        f"{limits.max_num_seqs:,}",
        f"{limits.max_num_batched_tokens:,}",
    )


def _source(fact: Sourced[Device]) -> tuple[str, ...]:
    return (code(fact.value.name), fact.package, fact.version, fact.path, code(fact.quote), fact.note)
