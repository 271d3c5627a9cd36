"""What an operating system takes as a command line."""

from typing import Final

from servespec.provenance import Sourced
from servespec.units import Bytes

LONGEST_ARGUMENT: Final = Sourced(
    Bytes(131_072),
    "bytes",
    "Linux",
    "",
    "include/uapi/linux/binfmts.h",
    "#define MAX_ARG_STRLEN (PAGE_SIZE * 32)",
    "with pages of 4 KiB, the smallest there are, and a closing zero",
)
