"""What stands before the engine's program: variables, and the wrapper or container that starts it."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from servespec.compiler import command_rules as rules
from servespec.compiler.command_line.findings import secret
from servespec.compiler.command_line.masking import Masked, masked
from servespec.compiler.command_line.word import Word, on_one_line
from servespec.compiler.facts.engine_fields import versions
from servespec.diagnostics import Diagnostic

CONTAINER_PROGRAMS = ("docker", "podman", "nerdctl")
ENTRY_POINT = "--entrypoint"
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_ENV_OPTION = re.compile(r"(?:-e|--env)=?")
_IMAGE = re.compile(r"(?:[\w.-]+(?::\d+)?/)+vllm[\w.-]*(?::[\w.-]+)?(?:@sha256:[0-9a-f]+)?")
_IMAGE_RELEASE = re.compile(
    r"(?:[\w.:-]+/)*vllm-openai[\w-]*:v(?P<release>\d[\w.]*)(?:-[\w.-]+)?(?:@sha256:[0-9a-f]+)?"
)
_DEVICES = re.compile(r"(?:.*,)?\"?device=(?P<devices>[^;\"]+)\"?")


@dataclass(frozen=True, slots=True)
class Wrapper:
    """``words`` up to the program, the name of a container's image among them."""

    words: tuple[Word, ...]

    @property
    def is_container(self) -> bool:
        return any(word.text.rpartition("/")[2] in CONTAINER_PROGRAMS for word in self.words)

    def variables(self) -> Iterator[tuple[Word, str, str]]:
        """The assignments in the order written; in front of a container only what is given to it."""
        for at, word in enumerate(self.words):
            found = _ASSIGNMENT.fullmatch(self._assignment_at(at) if self.is_container else word.text)
            if found:
                yield word, found[1], found[2]

    def findings(self) -> Iterator[Diagnostic]:
        """What is not carried: files of variables, and all other words, in full but for what may be a secret."""
        if self.is_container:
            yield from self._files_of_variables()
        others = [at for at in range(len(self.words)) if not self._is_carried(at)]
        if not others:
            return
        shown = masked([word.text for word in self.words])
        line = on_one_line(" ".join(_quoted(shown[at], self.words[at]) for at in others))
        yield rules.S317.at(self.words[others[0]].place, f"`{line}` before the program is not carried")
        for at in others:
            yield from (secret(name, name, self.words[at]) for name in shown[at].secrets)

    def gpu_findings(self, ranks: int) -> Iterator[Diagnostic]:
        """Where a container is given another number of GPUs than the layout takes."""
        for at, word in enumerate(self.words):
            count = gpu_count(self._value_of("--gpus", at)) if self.is_container else None
            if count is not None and count != ranks:
                message = f"the container has {_gpus(count)}, and the layout takes {ranks}"
                yield rules.S317.at(word.place, message, "check `--tensor-parallel-size` and `hardware.count`")

    def release(self) -> tuple[Word, str] | None:
        """The image and the engine's release by its tag; None where no tag names one."""
        for word in self.words:
            found = _IMAGE_RELEASE.fullmatch(word.text)
            if found:
                return word, found["release"]
        return None

    def unknown_release(self) -> Iterator[Diagnostic]:
        """Where the image's engine is none whose flags are known."""
        image, release = self.release() or (None, "")
        if image is not None and release not in versions():
            message = f"the image has vLLM {release}, and what is known is {', '.join(versions())}"
            help_text = f"it is read as vLLM {versions()[-1]} would read it; check the spec with your engine"
            yield rules.S324.at(image.place, message, help_text)

    def _assignment_at(self, at: int) -> str:
        """What a container is given as a variable by the word at ``at``, '' where nothing is."""
        text = self.words[at].text
        if at and self.words[at - 1].text in ("-e", "--env"):
            return text
        option = _ENV_OPTION.match(text)
        return text[option.end() :] if option else ""

    def _files_of_variables(self) -> Iterator[Diagnostic]:
        for at, word in enumerate(self.words):
            name = self._value_of("--env-file", at)
            if name:
                message = f"the variables of `{on_one_line(name)}` are not read"
                yield rules.S323.at(word.place, message, "write those of the engine under `engine.env`")

    def _value_of(self, option: str, at: int) -> str:
        """What the word at ``at`` gives to an option, '' where it is another word."""
        name, equals, value = self.words[at].text.partition("=")
        if name != option:
            return ""
        return value if equals else self.words[at + 1].text if at + 1 < len(self.words) else ""

    def _is_carried(self, at: int) -> bool:
        text, contained = self.words[at].text, self.is_container
        following = contained and text in ("-e", "--env") and at + 1 < len(self.words)
        assignment = self._assignment_at(at + 1 if following else at) if contained else text
        is_named_elsewhere = not contained and is_engine_image(text)
        return bool(_ASSIGNMENT.fullmatch(assignment)) or is_named_elsewhere or text.rpartition("/")[2] == "env"


def is_engine_image(text: str) -> bool:
    """Whether a word names an image whose entry point is `vllm serve`."""
    return _IMAGE.fullmatch(text) is not None


def gpu_count(option: str) -> int | None:
    """How many GPUs `--gpus OPTION` gives a container; None for all of them, and where it does not tell."""
    if option.isdecimal():
        return int(option)
    devices = _DEVICES.fullmatch(option)
    return len(devices["devices"].split(",")) if devices else None


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _quoted(shown: Masked, word: Word) -> str:
    """A word as a shell would need it; one with a gap is not to be typed."""
    return shown.text if shown.secrets else shlex.quote(word.text)
