# SPDX-License-Identifier: Apache-2.0
"""The wheel of `make wheel`, which puts tally/ with libtally.so.0 beside this file.

The library is called through ctypes: one wheel serves every version of Python 3, but one kind
of machine.
"""
from setuptools import setup
from setuptools.dist import Distribution
from wheel.bdist_wheel import bdist_wheel


class Binary(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython3(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


def version():
    with open("tally/_ffi.py", encoding="utf-8") as f:
        return next(line.split('"')[1] for line in f if line.startswith("VERSION = "))


with open("README.md", encoding="utf-8") as readme:
    setup(
        name="tally",
        version=version(),
        description="Sum gradients across processes and machines",
        long_description=readme.read(),
        long_description_content_type="text/markdown",
        license="Apache-2.0",
        license_files=["LICENSE"],
        python_requires=">=3.9",
        install_requires=["numpy"],
        packages=["tally", "tally.torch"],
        package_data={"tally": ["libtally.so.0"]},
        distclass=Binary,
        cmdclass={"bdist_wheel": AnyPython3},
        zip_safe=False,
    )
