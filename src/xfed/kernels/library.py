"""The compiled kernels: built with the user's own compiler at first use, kept in the cache folder, loaded by ctypes.

The file's name holds a digest of the source, the compiler and the processor it compiles for, so a library is used only
where it was built for. It is written whole: processes that build it at the same time put the same file in the same
place.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xfed.data.raw.locations import cache_root
from xfed.files import whole

SOURCES = Path(__file__).with_name("native")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fPIC", "-shared", "-w")
KERNELS = {"xfed_images_forward": 5, "xfed_images_backward": 5, "xfed_maps_forward": 5, "xfed_maps_backward": 7}
"""What the library exports, and how many tensors each takes besides a shape."""
NATIVE = ("-march=native", "-mcpu=native")
"""What compilers call the processor at hand: the first on x86, the second on ARM."""


class UnavailableError(Exception):
    """There are no compiled kernels here; says why."""


class Shape(ctypes.Structure):
    """What the kernels are called with, as declared in the source."""

    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("images", "channels", "height", "width", "outputs", "kernel", "padding")
    )


@dataclass(frozen=True)
class Library:
    """The compiled kernels, loaded."""

    path: Path
    digest: str
    """Identifies their bits: source, compiler and processor."""
    functions: ctypes.CDLL

    def call(self, name: str, *arguments: object) -> None:
        """Call a kernel with addresses of tensors and, last, a shape."""
        if getattr(self.functions, name)(*arguments):
            raise MemoryError(f"kernel {name} found no memory")

    @property
    def lanes(self) -> int:
        """Numbers in one vector of this processor."""
        lanes: int = self.functions.xfed_lanes()
        return lanes


@cache
def library() -> Library:
    """Load the kernels, building them first where they are not there yet."""
    compiler = _compiler()
    native, target = _target(compiler)
    command = (compiler, *FLAGS, native)
    sources = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    text = b"\0".join([*sources, " ".join(command[1:]).encode(), target])
    digest = hashlib.sha256(text).hexdigest()[:16]
    path = cache_root() / "kernels" / f"stage-{digest}.so"
    try:
        if not path.is_file():
            with whole(path) as temporary:
                _execute([*command, str(SOURCES / "stage.cpp"), "-o", str(temporary)])
        functions = ctypes.CDLL(str(path))
    except OSError as error:
        raise UnavailableError(
            f"the compiled kernels cannot be kept in {str(path.parent)!r} or loaded: {error}"
        ) from None
    for name, tensors in KERNELS.items():
        getattr(functions, name).argtypes = [ctypes.c_void_p] * tensors + [ctypes.POINTER(Shape)]
    return Library(path, digest, functions)


def identity() -> str | None:
    """Identify the bits of the compiled kernels here; nothing where there are none."""
    try:
        return library().digest
    except UnavailableError:
        return None


def _compiler() -> str:
    names = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise UnavailableError(f"no C++ compiler was found ({', '.join(names)})")
    return found


def _target(compiler: str) -> tuple[str, bytes]:
    """Give the flag for the processor at hand, and what the compiler then says of itself and of that processor."""
    for native in NATIVE:
        try:
            return native, _execute([compiler, native, "-x", "c++", "-dM", "-E", os.devnull])
        except UnavailableError as error:
            reason = error
    raise reason


def _execute(command: list[str]) -> bytes:
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=300).stdout
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        raise UnavailableError(f"compiler {command[0]!r} fails: {lines[0]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"compiler {command[0]!r} fails: {error}") from None
