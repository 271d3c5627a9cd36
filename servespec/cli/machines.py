"""`--gpu NAME[xCOUNT]`: the machine that a command is about."""

import typer

_OPTION = "--gpu"


def complete_gpu(incomplete: str) -> list[str]:
    from servespec.compiler.facts.devices import DEVICES

    return [name for name in DEVICES if name.startswith(incomplete)]


def machine(gpu: str) -> tuple[str, int | None]:
    """A device of the table, and how many where the name says so; refused with the nearest name."""
    from servespec.compiler.facts.devices import DEVICES, device_named
    from servespec.presets.catalog import named_machine
    from servespec.schema.nearest import nearest_by_words

    name, count = named_machine(gpu)
    device = device_named(name)
    if device is None:
        near = nearest_by_words(name, DEVICES)
        meant = f"did you mean `{near[0]}`? " if near else ""
        message = f"`{name}` is not in the device table; {meant}it has {', '.join(DEVICES)}"
        raise typer.BadParameter(message, param_hint=_OPTION)
    return device.name, count


def machine_for_command(gpu: str, count: int | None) -> tuple[str, int | None]:
    """The machine of a command line; ``count`` is that of `--count`, and the layout tells where neither says it."""
    name, named = machine(gpu)
    if named is not None and count not in (None, named):
        raise typer.BadParameter(f"`{gpu}` is {named} of them", param_hint="--count")
    return name, count or named
