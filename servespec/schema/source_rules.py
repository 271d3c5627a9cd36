"""The rules of reading: what can be wrong with a file before any field of it is looked at."""

from servespec.diagnostics import Rule, Severity

S001 = Rule(
    "S001",
    "not-utf8",
    Severity.ERROR,
    "the file is not UTF-8 text",
    "A spec is UTF-8 text. Files saved as UTF-16 or in a legacy code page read differently on different "
    "machines, so they are refused. Save the file as UTF-8; a byte-order mark is allowed.",
    "YAML 1.2.2, 5.2 Character Encodings",
)
S002 = Rule(
    "S002",
    "control-character",
    Severity.ERROR,
    "the file holds a character that text may not hold",
    "Control characters, NUL included, and unpaired surrogates are invisible in an editor, cannot be "
    "passed to a process, and can drive a terminal. They are refused both as characters and as escapes "
    "such as `\\0`. Tab, line feed and carriage return are allowed in values.",
    "YAML 1.2.2, 5.1 Character Set",
)
S003 = Rule(
    "S003",
    "file-too-large",
    Severity.ERROR,
    "the file is larger than a spec can be",
    "A spec is a page or two of text. A much larger file is most likely another file (a log, a "
    "tokenizer), and is refused before it is parsed, so that the answer comes at once.",
)
S004 = Rule(
    "S004",
    "empty-file",
    Severity.ERROR,
    "the file holds no spec",
    "The file is empty, or holds only comments, `---` or `null`. `servespec init` writes a spec to start from.",
)
S005 = Rule(
    "S005",
    "syntax",
    Severity.ERROR,
    "the file is not YAML",
    "The text breaks the grammar of YAML at the marked place. What follows that place is not read, so "
    "further faults may show once this one is mended.",
    "YAML 1.2.2",
)
S006 = Rule(
    "S006",
    "tab",
    Severity.ERROR,
    "a tab stands where only spaces may",
    "YAML does not allow tabs in indentation, because their width is not defined. Tabs between a key and "
    "its value or at the end of a line are refused too. Tabs inside quoted text are fine.",
    "YAML 1.2.2, 6.1 Indentation Spaces",
)
S007 = Rule(
    "S007",
    "duplicate-key",
    Severity.ERROR,
    "the same key stands twice in one mapping",
    "Only one of the two values could take effect, and which one differs between YAML readers. Keep one. "
    "A key that overrides one brought in by `<<` is not a duplicate.",
    "YAML 1.2.2, 3.2.1.3 Node Comparison",
)
S008 = Rule(
    "S008",
    "not-a-mapping",
    Severity.ERROR,
    "the top level of a spec is a mapping",
    "A spec is a mapping whose first key is `servespec: 1`; a list, a word or a number at the top level "
    "is something else.",
)
S009 = Rule(
    "S009",
    "several-documents",
    Severity.ERROR,
    "the file holds more than one document",
    "`---` starts a new YAML document. One file holds one spec: a second document would be read by nobody.",
    "YAML 1.2.2, 9.2 Streams",
)
S010 = Rule(
    "S010",
    "undefined-alias",
    Severity.ERROR,
    "an alias names an anchor that is not there",
    "`*name` repeats the value marked `&name`, which must stand earlier in the file. A value that starts "
    "with `*` for another reason needs quotes.",
    "YAML 1.2.2, 7.1 Alias Nodes",
)
S011 = Rule(
    "S011",
    "recursive-alias",
    Severity.ERROR,
    "a value contains itself",
    "`*name` stands inside the value marked `&name`, so that the value would never end.",
    "YAML 1.2.2, 7.1 Alias Nodes",
)
S012 = Rule(
    "S012",
    "too-many-values",
    Severity.ERROR,
    "the file holds more values than a spec can",
    "Values that come through aliases and merges count wherever they are used. A few lines of aliases of "
    "aliases can stand for billions of values, so the count is bounded before any memory is taken.",
)
S013 = Rule(
    "S013",
    "nested-too-deep",
    Severity.ERROR,
    "the file is nested deeper than a spec can be",
    "No field of a spec is more than a few levels deep. Deeper nesting is most likely a bracket that is "
    "never closed, or a file meant to exhaust its reader.",
)
S014 = Rule(
    "S014",
    "key-not-a-name",
    Severity.ERROR,
    "a key is not a name",
    "Every key of a spec is text. YAML reads an unquoted `1`, `true` or `null` as a number, a boolean or "
    "nothing; put the key in quotes where such a name is meant.",
)
S015 = Rule(
    "S015",
    "tag",
    Severity.ERROR,
    "a spec may not hold YAML tags",
    "Tags such as `!!python/object` or `!env` ask the reader to build objects or run code. A spec is "
    "data: no tag is followed, not even a harmless one.",
    "YAML 1.2.2, 6.9.1 Node Tags",
)
S016 = Rule(
    "S016",
    "merge-not-a-mapping",
    Severity.ERROR,
    "only a mapping can be merged",
    "`<<` copies the keys of another mapping, or of each of a list of mappings, into this one.",
    "YAML merge key, working draft of 2005",
)
S017 = Rule(
    "S017",
    "yaml-version",
    Severity.ERROR,
    "a spec is YAML 1.2",
    "A `%YAML` line asks for another version of YAML, in which for example `on` and `0777` mean other "
    "things than in a spec.",
    "YAML 1.2.2, 6.8.1 YAML Directives",
)
S018 = Rule(
    "S018",
    "number-too-long",
    Severity.ERROR,
    "a number has too many digits",
    "No quantity of a spec needs so many digits; quote the value if it is text.",
)
S019 = Rule(
    "S019",
    "too-many-faults",
    Severity.ERROR,
    "the file has more faults than are listed",
    "Reading stops after a fixed number of faults; mend those that are listed and try again.",
)

RULES: tuple[Rule, ...] = (
    S001, S002, S003, S004, S005, S006, S007, S008, S009, S010,
    S011, S012, S013, S014, S015, S016, S017, S018, S019,
)  # fmt: skip
