"""What `serve` says at its end about how the target's steps ran."""

from servespec.compiler.lower import Statistics
from servespec.render.serve_text import dispatch_table, verification_line
from servespec.runtime.capture import VerificationSteps
from servespec.runtime.dispatch_counts import ModeCount


def counted(mode: str, steps: int, unpadded: int, padding: int, engine: int = 0) -> ModeCount:
    return ModeCount(engine=engine, mode=mode, steps=steps, unpadded_tokens=unpadded, padding_tokens=padding)


def test_the_table_adds_up_over_engines() -> None:
    counts = [
        counted("NONE", 100, 900_000, 0),
        counted("FULL", 1500, 9_000, 1_000),
        counted("PIECEWISE", 200, 300, 700, engine=1),
        counted("FULL", 200, 90_000, 0, engine=1),
    ]

    assert dispatch_table(counts, Statistics.SERVESPEC).splitlines() == [
        "how the target's steps ran; a drafter's are not counted",
        "  FULL       85.0 % of 2,000 steps, 1.0 % of its tokens padding",
        "  PIECEWISE  10.0 % of 2,000 steps, 70.0 % of its tokens padding",
        "  eager       5.0 % of 2,000 steps, 0.0 % of its tokens padding",
    ]


def test_nothing_counted_is_no_table() -> None:
    assert dispatch_table([], Statistics.SERVESPEC) == ""


def test_statistics_that_were_switched_off_are_said() -> None:
    assert dispatch_table([], Statistics.OFF) == (
        "the target's steps were not counted: `engine.args` switches the engine's statistics off\n"
    )


def test_a_mode_of_a_later_engine_is_said_by_its_own_name() -> None:
    table = dispatch_table([counted("WHOLE", 1, 1, 0), counted("NONE", 1, 1, 0)], Statistics.SPEC)

    assert [line.split()[0] for line in table.splitlines()[1:]] == ["eager", "WHOLE"]


def test_verification_that_follows_the_load_is_one_line() -> None:
    said = verification_line(VerificationSteps(fixed=1234, adaptive=56))

    assert said == "verification: 1,234 steps with all drafts, 56 adaptive\n"


def test_verification_that_does_not_is_none() -> None:
    assert verification_line(None) == ""
