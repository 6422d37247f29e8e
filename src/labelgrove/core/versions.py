"""The version of this library, where every room can read it without loading the package."""

VERSION = "0.2.0"
