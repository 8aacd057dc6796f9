"""Costs as ratios measured in one run: `nox -s bench`."""
