"""The rules of finding what a spec names: models, devices, engines."""

from servespec.diagnostics import Rule, Severity

R001 = Rule(
    "R001", "model-config-not-found", Severity.ERROR, "the model's config cannot be found",
    "A plan needs the model's `config.json`: its architecture decides which graphs exist. It is looked for in the "
    "folder that the spec names, in the model cache, and on the hub where it can be reached.",
)  # fmt: skip
R002 = Rule(
    "R002", "model-config-unreadable", Severity.ERROR, "the model's config cannot be read",
    "The file is not JSON with a mapping at its top, or is far larger than a config.",
)  # fmt: skip
R003 = Rule(
    "R003", "device-file-unreadable", Severity.ERROR, "the device file cannot be read",
    "`servespec doctor --device-file FILE` writes one on the machine that it describes.",
)  # fmt: skip
R004 = Rule(
    "R004", "device-unknown", Severity.ERROR, "the GPU is not in the device table",
    "The device table holds the GPUs whose memory, compute capability and engine defaults are known. For any other "
    "GPU, `servespec doctor --device-file FILE` describes the machine at hand.",
)  # fmt: skip
R005 = Rule(
    "R005", "engine-unsupported", Severity.ERROR, "no facts about this engine version",
    "Plans rest on facts read from the engine's source, version by version. `--allow-unverified-engine` plans with "
    "the nearest version's facts and says so; every line is then an estimate.",
)  # fmt: skip
R006 = Rule(
    "R006", "engine-unverified", Severity.WARNING, "the plan rests on another engine version's facts",
    "The named version has no facts of its own here, or the installed engine's source differs from what they were "
    "read from.",
)  # fmt: skip
R007 = Rule(
    "R007", "plan-relevant-variable-in-shell", Severity.ERROR, "a variable of the shell changes the plan",
    "The server would inherit it, and the plan does not know it. Unset it, or write it in the spec.",
)  # fmt: skip
R008 = Rule(
    "R008", "file-unreadable", Severity.ERROR, "a file cannot be read",
    "An argument is a file that can be read, or `-` for standard input; a folder is not searched.",
)  # fmt: skip
R009 = Rule(
    "R009", "hardware-absent", Severity.ERROR, "this machine is not the one that the spec is for",
    "A spec is served on the hardware that it names, never on other hardware or with another model.",
)  # fmt: skip
R010 = Rule(
    "R010", "installed-engine-differs", Severity.ERROR, "the installed engine is not the one that was planned for",
    "A plan holds for one engine, known by the source of the functions that it relies on. Nothing is started with "
    "another: it would capture something else.",
)  # fmt: skip
R011 = Rule(
    "R011", "no-gpu-to-describe", Severity.ERROR, "there is no GPU to describe",
    "`servespec doctor --device-file` asks the NVIDIA driver of the machine that it runs on.",
)  # fmt: skip
R012 = Rule(
    "R012", "weights-unreadable", Severity.WARNING, "the model's files do not tell their sizes",
    "A folder with safetensors is asked for the sizes of its tensors, by their headers alone. A file that is damaged, "
    "or still being downloaded, does not stop a plan: its weights are then counted by formula.",
)  # fmt: skip
R013 = Rule(
    "R013", "record-without-memory", Severity.ERROR, "the record tells nothing of memory",
    "`--measured` needs a record whose workers reported their memory, which they do under the `extension` lowering, "
    "of a launch that captured what was planned.",
)  # fmt: skip

R014 = Rule(
    "R014", "document-invalid", Severity.ERROR, "a file is not the document that it looks like",
    "What servespec writes is checked against its published schema whenever it is read back, so that a file that was "
    "cut short, edited or written by another version is not taken for what it was. The kind of a file is found from "
    "its keys.",
)  # fmt: skip
R015 = Rule(
    "R015", "not-comparable", Severity.ERROR, "the file has no plan to compare with",
    "`--against` takes `stock`, `legacy`, a spec, the JSON of a plan, or a record.",
)  # fmt: skip

RULES: tuple[Rule, ...] = (R001, R002, R003, R004, R005, R006, R007, R008, R009, R010, R011, R012, R013, R014, R015)
