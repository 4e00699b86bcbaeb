"""The version of the package, also read by the wheel build."""

VERSION = "0.1.0"
