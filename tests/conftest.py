"""Shared by all tests."""

pytest_plugins = ["pytester"]
