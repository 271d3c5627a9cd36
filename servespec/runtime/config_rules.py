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
    "An argument is a file that can be read, `preset:NAME`, or `-` for standard input; a folder is not searched.",
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
    "R013", "measurement-unusable", Severity.ERROR, "what was measured cannot be used",
    "`--measured` takes one record, of a launch that captured what was planned and whose workers reported their "
    "memory, which they do under the `extension` lowering; and one document of step times.",
)  # fmt: skip

R014 = Rule(
    "R014", "preset-unknown", Severity.ERROR, "there is no preset of that name",
    "A preset is named `MODEL__HARDWARE__GOAL`; `servespec presets list` prints those that come with this version.",
)  # fmt: skip
R015 = Rule(
    "R015", "shipped-model-facts", Severity.NOTE, "the model's own config is not at hand",
    "For the models of the presets the package has the public part of `config.json`, so that a plan needs no network. "
    "The model's own config is taken as soon as it is in the model cache, and always where the spec names a revision.",
)  # fmt: skip
R016 = Rule(
    "R016", "shipped-model-facts-differ", Severity.WARNING, "the model's own config says something else",
    "The plan rests on the model's own config. Presets were planned with the facts that come with the package: where "
    "the two differ, what a preset says of its graphs and memory does not hold for this model.",
)  # fmt: skip
R017 = Rule(
    "R017", "document-invalid", Severity.ERROR, "a file is not the document that it looks like",
    "What servespec writes is checked against its published schema whenever it is read back, so that a file that was "
    "cut short, edited or written by another version is not taken for what it was. The kind of a file is found from "
    "its keys.",
)  # fmt: skip
R018 = Rule(
    "R018", "not-comparable", Severity.ERROR, "the file has no plan to compare with",
    "`--against` takes `stock`, `legacy`, a spec, the JSON of a plan, or a record.",
)  # fmt: skip
R019 = Rule(
    "R019", "curve-unreadable", Severity.ERROR, "the curve that the spec names cannot be used",
    "`speculative.dynamic.from_curve` names what `servespec profile` wrote, or several such files of one engine, each "
    "from the folder of the spec.",
)  # fmt: skip
R020 = Rule(
    "R020", "acceptance-unreadable", Severity.ERROR, "it does not say how often drafts are accepted",
    "`servespec acceptance` reads the counters of a running server, or a result of `vllm bench serve`.",
    "vllm/v1/spec_decode/metrics.py: SpecDecodingProm",
)  # fmt: skip
R021 = Rule(
    "R021", "drafts-shorter-than-k", Severity.WARNING, "steps drafted fewer tokens than K",
    "The engine counts what was accepted of each position over all drafts, those too that had no such position, as "
    "under dynamic speculation. Rates of late positions then come out too low.",
    "vllm/v1/spec_decode/metrics.py: SpecDecodingStats",
)  # fmt: skip
R022 = Rule(
    "R022", "no-such-grid", Severity.ERROR, "the curve does not have what the grid is asked of",
    "Sizes follow from the time of a step at every size from 1 to the cap. What was not timed is not guessed.",
)  # fmt: skip
R023 = Rule(
    "R023", "not-a-spec", Severity.ERROR, "the file holds something else than a spec",
    "What servespec writes, an engine's config and a recipe are known by their keys. The help names the command that "
    "takes the file.",
)  # fmt: skip
R024 = Rule(
    "R024", "record-not-as-planned", Severity.WARNING, "a launch did not capture what its plan says",
    "`--against` takes the plan out of a record. What that launch captured stands beside it, row by row, in the column "
    "`captured`.",
)  # fmt: skip

RULES: tuple[Rule, ...] = (
    *(R001, R002, R003, R004, R005, R006, R007, R008, R009, R010, R011, R012, R013, R014, R015, R016, R017, R018, R019),
    *(R020, R021, R022, R023, R024),
)
