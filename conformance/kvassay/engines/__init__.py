"""Adapters of the reference and of engines that others wrote; each maps and none repairs."""
