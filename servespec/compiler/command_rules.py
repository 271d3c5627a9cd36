"""The rules of a command line: what can be wrong with the words of `vllm serve`, and what a spec cannot take over."""

from servespec.diagnostics import Rule, Severity

_PARSER = "vllm/utils/argparse_utils.py: FlexibleArgumentParser.parse_args"
_ENGINE_ARGS = "vllm/engine/arg_utils.py: EngineArgs"

S301 = Rule(
    "S301", "no-server-command", Severity.ERROR, "the command line starts no vLLM server",
    "What is read is `vllm serve ...`, `python -m vllm.entrypoints.openai.api_server ...` or `docker run` of a vLLM "
    "image, with whatever variables and wrappers stand before it.",
)  # fmt: skip
S302 = Rule(
    "S302", "unknown-flag", Severity.ERROR, "the engine has no such flag or field",
    "The engine refuses to start. The help names the nearest flag of the engine version that the plan is for.", _PARSER,
)  # fmt: skip
S303 = Rule(
    "S303", "removed-flag", Severity.ERROR, "the engine has renamed or removed this flag",
    "The help names what took its place.",
)  # fmt: skip
S304 = Rule(
    "S304", "ambiguous-flag", Severity.ERROR, "the flag is the beginning of several flags",
    "The engine takes a flag that is cut short only where one flag begins so.", _PARSER,
)  # fmt: skip
S305 = Rule(
    "S305", "flag-value", Severity.ERROR, "the engine does not take this value for the flag",
    "The reason is the engine's own: its type, its choices, or how many values the flag takes.",
    "vllm/engine/arg_utils.py: _compute_kwargs",
)  # fmt: skip
S306 = Rule(
    "S306", "unexpected-word", Severity.ERROR, "a word belongs to no flag",
    "The first word that belongs to no flag is the model; the engine refuses a second one. Often the flag before it "
    "takes fewer values than were written.", _PARSER,
)  # fmt: skip
S307 = Rule(
    "S307", "flag-repeated", Severity.WARNING, "a flag is given more than once",
    "The engine takes the last one and forgets the others.", _PARSER,
)  # fmt: skip
S308 = Rule(
    "S308", "exclusive-flags", Severity.ERROR, "one setting is given in two spellings that the engine refuses together",
    "Keep one of the two.", f"{_ENGINE_ARGS}.create_engine_config",
)  # fmt: skip
S309 = Rule(
    "S309", "setting-overridden", Severity.WARNING, "a setting is lost to another spelling of it",
    "Dotted keys of a flag are put together into one value that replaces a whole JSON value of the same flag, and some "
    "flags replace a key of a config. The message says which one the engine takes.", _PARSER,
)  # fmt: skip
S310 = Rule(
    "S310", "secret-on-command-line", Severity.WARNING, "a secret is not carried into the spec",
    "Specs are shared and committed, and a command line is seen by every process of the machine. Give the secret to "
    "the engine through its environment variable.",
)  # fmt: skip
S311 = Rule(
    "S311", "config-file", Severity.ERROR, "the file named by `--config` cannot be used",
    "The engine reads one YAML file, named by the word after `--config`, whose keys are long flags.",
    "vllm/utils/argparse_utils.py: FlexibleArgumentParser._pull_args_from_config",
)  # fmt: skip
S312 = Rule(
    "S312", "config-file-dropped", Severity.WARNING, "the engine drops a line of the file named by `--config`",
    "`false` is passed on only where the parser that reads the file has a `--no-` form of the key as written, which "
    "that of `vllm serve` never has; an empty list is dropped too.",
    "vllm/utils/argparse_utils.py: FlexibleArgumentParser.load_config_file",
)  # fmt: skip
S313 = Rule(
    "S313", "without-effect", Severity.WARNING, "a flag has no effect beside the others",
    "The engine reads the flag and does not use it, so it is not carried.", f"{_ENGINE_ARGS}.create_engine_config",
)  # fmt: skip
S314 = Rule(
    "S314", "no-model", Severity.WARNING, "the command line names no model",
    "The engine serves its own default model then.", "vllm/entrypoints/cli/serve.py: DESCRIPTION",
)  # fmt: skip
S315 = Rule(
    "S315", "foreign-variable", Severity.WARNING, "a variable is not one that the engine reads",
    "A spec sets the engine's own variables and those of the libraries it is built on; others stay with the shell.",
)  # fmt: skip
S316 = Rule(
    "S316", "no-field", Severity.WARNING, "a spec has no form for this value",
    "The engine takes the value; a spec cannot say it, so the plan is made without it.",
)  # fmt: skip
S317 = Rule(
    "S317", "words-before-program", Severity.NOTE, "words before the engine's program are not carried",
    "They say how the program is started (a container, a wrapper), not what the engine is told.",
)  # fmt: skip
S318 = Rule(
    "S318", "unset-variable", Severity.ERROR, "a word refers to a variable that nothing above it sets",
    "A script is read and not run: what its shell, its arguments or another program would put there is not known.",
)  # fmt: skip
S319 = Rule(
    "S319", "recipe-part", Severity.NOTE, "a part of a recipe is not carried",
    "A recipe is a base command and choices beside it: hardware, strategies, features. What is imported is the base "
    "with one variant and the features that are on by default; the rest is named, to be added by hand.",
)  # fmt: skip
S320 = Rule(
    "S320", "no-command-in-file", Severity.ERROR, "the file starts no vLLM server",
    "What is read is a shell script, Markdown with shell code, a vLLM recipe, a Compose file or a Kubernetes manifest, "
    "or the YAML of `vllm serve --config`.",
)  # fmt: skip
S321 = Rule(
    "S321", "set-in-a-branch", Severity.WARNING, "a word has a value that the script sets only in a branch",
    "A script is read and not run, so its conditions are not known: the last assignment is taken, whatever branch, "
    "loop or function it stands in. Check that it is what your server runs with.",
)  # fmt: skip
S322 = Rule(
    "S322", "command-in-a-branch", Severity.NOTE, "the script starts the server only in a branch",
    "The command is imported as if it ran. What the other branches start is another command of the file, if anything.",
)  # fmt: skip
S323 = Rule(
    "S323", "file-of-variables", Severity.WARNING, "a file of variables for a container is not read",
    "What `--env-file` names may hold settings of the engine and secrets; the first belong into the spec, the second "
    "into the shell that starts the server.",
)  # fmt: skip
S324 = Rule(
    "S324", "unknown-image", Severity.WARNING, "the container's image has an engine that is not known",
    "The tag of an official image names the engine's release, and a known one becomes `engine.version`. The flags of "
    "any other are read as those of the newest release that is known.",
)  # fmt: skip

RULES: tuple[Rule, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Rule))
