"""The tags of a wheel, which depend on the built libraries."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import binutils  # tools/pep517/, which is on sys.path during the build
from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

PACKAGE = Path(__file__).resolve().parent / "tf_blockrnn"

# The oldest glibc that comes with a libstdc++ of each version: (GLIBCXX_3.4.n, glibc 2.m), as in
# the manylinux policies.
_GLIBC_OF_LIBSTDCXX = [
    (19, 17),
    (22, 24),
    (24, 27),
    (25, 28),
    (28, 31),
    (29, 34),
    (30, 35),
    (32, 38),
    (33, 39),
]


def platform_tag() -> str:
    """The oldest manylinux whose glibc and libstdc++ have all symbols that the libraries need."""
    libraries = list(PACKAGE.glob("*.so"))
    machine = binutils.machine_of(libraries)
    objdump = [binutils.find("objdump", machine), "-T"]
    symbols = "".join(
        subprocess.run([*objdump, str(library)], check=True, capture_output=True, text=True).stdout
        for library in libraries
    )
    glibc = max((int(minor) for minor in re.findall(r"\(GLIBC_2\.(\d+)", symbols)), default=17)
    libstdcxx = max(
        (int(patch) for patch in re.findall(r"\(GLIBCXX_3\.4\.(\d+)", symbols)), default=0
    )
    enough = [minor for patch, minor in _GLIBC_OF_LIBSTDCXX if patch >= libstdcxx]
    if not enough:
        return f"linux_{machine}"  # newer than all policies listed here
    return f"manylinux_2_{max(17, glibc, enough[0])}_{machine}"


class Wheel(bdist_wheel):
    """The libraries do not depend on the Python version: any Python 3, one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", platform_tag()


class WithLibraries(Distribution):
    """Installs to platlib, because the package is not pure Python."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=WithLibraries, cmdclass={"bdist_wheel": Wheel})
