"""The tags of a wheel: any Python 3, one platform, since the libraries know nothing of Python."""

from __future__ import annotations

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibraries(Distribution):
    """Installs to platlib, because the package is not pure Python."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=WithLibraries, cmdclass={"bdist_wheel": Wheel})
