"""Reading classes, flags and variables from source text, on small made-up engines."""

from pathlib import Path
from typing import Any

import pytest
from engine_reading.configs import ConfigField, config_classes
from engine_reading.flags import Flag, flags
from engine_reading.source import Engine
from engine_reading.variables import variables

ALIASES = """
from typing import Literal, TypeAlias, Union
from enum import Enum, IntEnum

Small = Literal["a", "b"]
Wide: TypeAlias = Literal["auto", Small]
Either = Union[int, Small]

class Mode(IntEnum):
    NONE = 0
    FULL = 2

class Backend(Enum):
    FLASH = "pkg.Flash"
    TRITON = "pkg.Triton"

class Spelled(str, Enum):
    ONE = "one"

class Options(dict[str, int]):
    pass

LIMIT = 4 * 1024
"""
CONFIG = """
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Optional
from pydantic import Field, SkipValidation
import torch
from vllm.config.utils import config
from vllm.aliases import *
from .other import Inner
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from vllm.aliases import Small as Shrunk
else:
    Shrunk = Any

@config
class Base:
    inherited: int = 1

@config(config=dict(arbitrary=True))
class Config(Base):
    DEFAULT_SIZE: ClassVar[int] = 2048
    FIELD

    def method(self) -> None: ...
"""
OTHER = "from vllm.config.utils import config\n@config\nclass Inner:\n    x: int = 0\n"


def make_engine(root: Path, files: dict[str, str]) -> Engine:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Engine(root)


def read_field(root: Path, declaration: str) -> ConfigField:
    files = {
        "vllm/__init__.py": "",
        "vllm/aliases.py": ALIASES,
        "vllm/config/other.py": OTHER,
        "vllm/config/main.py": CONFIG.replace("FIELD", declaration),
    }
    fields = config_classes(make_engine(root, files))["Config"].fields
    return next(one for name, one in fields.items() if name != "inherited")


MODE = {"enum": "Mode", "names": ["NONE", "FULL"], "values": [0, 2]}
BACKEND = {"enum": "Backend", "names": ["FLASH", "TRITON"]}


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("int", "int"),
        ("Path", "str"),
        ("Any", "any"),
        ("int | None", {"union": ["int", "null"]}),
        ("Optional[float]", {"union": ["float", "null"]}),
        ('"str | None"', {"union": ["str", "null"]}),
        ("None | int | int", {"union": ["int", "null"]}),
        ("Small", {"literal": ["a", "b"]}),
        ("Wide", {"literal": ["auto", "a", "b"]}),
        ("Shrunk", {"literal": ["a", "b"]}),
        ("Either", {"union": ["int", {"literal": ["a", "b"]}]}),
        ("Annotated[int, 'why']", "int"),
        ("SkipValidation[Inner]", {"config": "Inner"}),
        ("list[int | str]", {"list": {"union": ["int", "str"]}}),
        ("tuple[int, ...]", {"list": "int"}),
        ("tuple[int, str]", {"tuple": ["int", "str"]}),
        ("set[str]", {"set": "str"}),
        ("dict[str, list[int]]", {"dict": ["str", {"list": "int"}]}),
        ("dict", {"dict": ["any", "any"]}),
        ("Options", {"dict": ["any", "any"]}),
        ("Mode", MODE),
        ("Backend", BACKEND),
        ("Spelled", {"enum": "Spelled", "names": ["ONE"], "values": ["one"]}),
        ("Inner", {"config": "Inner"}),
        ("torch.dtype", {"any": "torch.dtype"}),
        ("type[object]", {"any": "type[object]"}),
    ],
)
def test_annotations(tmp_path: Path, annotation: str, kind: Any) -> None:
    assert read_field(tmp_path, f"x: {annotation}").type == kind


@pytest.mark.parametrize(
    ("value", "default"),
    [
        ("3", 3),
        ("-0.5", -0.5),
        ("['a']", ["a"]),
        ("Field(default=7, gt=0)", 7),
        ("Field(7)", 7),
        ("Field(default=DEFAULT_SIZE)", 2048),
        ("LIMIT", 4096),
        ("16 * 1024", 16384),
        ("1 << 4", 16),
        ("Backend.TRITON", "TRITON"),
        ("Base.inherited", 1),
        ("field(default_factory=list)", []),
        ("field(default_factory=dict)", {}),
        ("Field(default_factory=lambda: ['*'])", ["*"]),
        ("field(default_factory=Inner)", {"config": "Inner"}),
        ("field(default_factory=made)", {"expr": "made()"}),
        ("computed()", {"expr": "computed()"}),
        ("field(init=False)", None),
    ],
)
def test_defaults(tmp_path: Path, value: str, default: Any) -> None:
    assert read_field(tmp_path, f"x: Any = {value}").default == default


def test_null_is_of_the_type_where_it_is_the_default(tmp_path: Path) -> None:
    assert read_field(tmp_path, "x: int = None").type == {"union": ["int", "null"]}


def test_bounds_line_text_and_marks(tmp_path: Path) -> None:
    field = read_field(tmp_path, 'x: int = Field(default=1, ge=1, lt=2**4, init=False)\n    """Why."""')

    assert (field.bounds, field.is_internal, field.is_required) == ({"ge": 1, "lt": 16}, True, False)
    assert field.doc == "Why."
    assert (tmp_path / "vllm/config/main.py").read_text().splitlines()[field.line - 1].strip()[:2] == "x:"
    assert read_field(tmp_path, "x: int").is_required


def test_what_is_no_field(tmp_path: Path) -> None:
    declared = "a: InitVar[int]\n    b: ClassVar[int] = 1\n    _c: int = 2\n    x: int = 3"

    fields = config_classes(
        make_engine(tmp_path, {"vllm/config/main.py": CONFIG.replace("FIELD", declared), "vllm/aliases.py": ALIASES})
    )["Config"].fields

    assert sorted(fields) == ["inherited", "x"]


ARG_UTILS = """
from vllm.config.main import Config
_OLD_DEPRECATION_MESSAGE = "--old is deprecated and will be removed in v9.1.0."
class EngineArgs:
    local_rank: int | None = None
    @staticmethod
    def add_cli_args(parser):
        kwargs = get_kwargs(Config)
        kwargs["late"]["default"] = None
        group = parser.add_argument_group(title="Config", description=Config.__doc__)
        group.add_argument("--size", "-s", **kwargs["size"])
        if not help:
            group.add_argument("--on", **kwargs["on"])
        group.add_argument("--many", **kwargs["many"])
        group.add_argument("--late", **kwargs["late"])
        group.add_argument("--renamed", dest="other", **{**kwargs["choice"], "default": None})
        group.add_argument("--inner", **get_kwargs(Config)["inner"])
        picked = kwargs["choice"]
        picked["type"] = str.lower
        group.add_argument("--picked", **picked)
        group.add_argument("--local-rank", type=int, help="x")
        group.add_argument("--old", action=argparse.BooleanOptionalAction, default=None)
        parser.add_argument("--quiet", action="store_true")
        return parser
@dataclass
class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser):
        return EngineArgs.add_cli_args(parser)
"""
CLI_ARGS = """
@config
class BaseFrontendArgs:
    api_key: list[str] | None = None
    def _customize_cli_kwargs(cls, frontend_kwargs):
        return frontend_kwargs
@config
class FrontendArgs(BaseFrontendArgs):
    origins: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    log: bool = True
    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
        frontend_kwargs["extra"]["action"] = "append"
        if "nargs" in frontend_kwargs["extra"]:
            del frontend_kwargs["extra"]["nargs"]
        return frontend_kwargs
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--headless", action="store_true", default=False)
    parser.add_argument("--count", "-c", type=int, default=None)
    return parser
"""
FIELDS = """size: int = 4
    on: bool = False
    many: list[int] | None = None
    late: int = 5
    choice: Small = "a"
    inner: Inner = field(default_factory=Inner)"""


FLAG_FILES = {
    "vllm/aliases.py": ALIASES,
    "vllm/config/other.py": OTHER,
    "vllm/config/main.py": CONFIG.replace("FIELD", FIELDS),
    "vllm/engine/arg_utils.py": ARG_UTILS.replace("class EngineArgs", "@dataclass\nclass EngineArgs"),
    "vllm/entrypoints/any/cli_args.py": CLI_ARGS,
    "vllm/utils/argparse_utils.py": "class FlexibleArgumentParser: ...",
}


@pytest.fixture
def read_flags(tmp_path: Path) -> dict[str, Flag]:
    engine = make_engine(tmp_path, FLAG_FILES)
    return flags(engine, config_classes(engine))


def test_flags(read_flags: dict[str, Flag]) -> None:
    shapes = {name: (one.spellings, one.form, one.nargs, one.config_field) for name, one in read_flags.items()}

    assert shapes == {
        "api_key": (("--api-key",), "list", "+", "api_key"),
        "count": (("--count", "-c"), "value", None, ""),
        "extra": (("--extra",), "append", None, "extra"),
        "headless": (("--headless",), "switch", None, ""),
        "inner": (("--inner",), "json", None, "inner"),
        "late": (("--late",), "value", None, "late"),
        "local_rank": (("--local-rank",), "value", None, ""),
        "log": (("--log",), "boolean", None, "log"),
        "many": (("--many",), "list", "+", "many"),
        "old": (("--old",), "boolean", None, ""),
        "on": (("--on",), "boolean", None, "on"),
        "origins": (("--origins",), "json", None, "origins"),
        "other": (("--renamed",), "value", None, "choice"),
        "picked": (("--picked",), "value", None, "choice"),
        "quiet": (("--quiet",), "switch", None, ""),
        "size": (("--size", "-s"), "value", None, "size"),
    }


def test_negations(read_flags: dict[str, Flag]) -> None:
    found = {name: one.negations for name, one in read_flags.items() if one.negations}

    assert found == {"log": ("--no-log",), "old": ("--no-old",), "on": ("--no-on",)}


def test_a_parser_that_pairs_enable_and_disable(tmp_path: Path) -> None:
    paired = FLAG_FILES | {
        "vllm/utils/argparse_utils.py": "class EnableDisableAction(BooleanOptionalAction): ...",
        "vllm/engine/arg_utils.py": FLAG_FILES["vllm/engine/arg_utils.py"].replace('"--old"', '"--disable-old"'),
    }
    engine = make_engine(tmp_path, paired)

    found = flags(engine, config_classes(engine))

    assert found["disable_old"].negations == ("--no-disable-old", "--enable-old")
    assert found["log"].negations == ("--no-log",)


def test_types_and_defaults_of_flags(read_flags: dict[str, Flag]) -> None:
    found = {name: (read_flags[name].type, read_flags[name].default) for name in ("size", "late", "other", "count")}

    assert found == {
        "size": ("int", 4),
        "late": ({"union": ["int", "null"]}, None),
        "other": ({"union": [{"literal": ["a", "b"]}, "null"]}, None),
        "count": ({"union": ["int", "null"]}, None),
    }
    assert {name: one.deprecated for name, one in read_flags.items() if one.deprecated is not None} == {"old": "9.1.0"}


ENVS = """
import os
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    FLAG: bool = False
    COUNT: int = 3
    NAME: str | None = None
    CHOICE: str = "x"
    HOME: str = os.path.expanduser("~")
    OTHER: bool = False
environment_variables: dict[str, object] = {
    "FLAG": lambda: bool(int(os.getenv("FLAG", "1"))),
    "COUNT": lambda: int(os.environ.get("COUNT", 5)),
    "NAME": lambda: os.environ.get("NAME", None),
    "CHOICE": env_with_choices("CHOICE", "y", ["x", "y"]),
    "HOME": lambda: os.path.expanduser(os.getenv("HOME", "~")),
    "OTHER": lambda: os.getenv("OTHER", "True").lower() in ("true", "1"),
    "BARE": lambda: os.getenv("BARE", "0") == "1",
}
"""


def test_variables(tmp_path: Path) -> None:
    """What the reader gives for an unset variable wins over what the annotation says."""
    engine = make_engine(tmp_path, {"vllm/envs.py": ENVS})

    found = {name: (one.type, one.default) for name, one in variables(engine).items()}

    assert found == {
        "FLAG": ("bool", True),
        "COUNT": ("int", 5),
        "NAME": ({"union": ["str", "null"]}, None),
        "CHOICE": ("str", "y"),
        "HOME": ("str", {"expr": "os.path.expanduser('~')"}),
        "OTHER": ("bool", True),
        "BARE": ("bool", False),
    }
