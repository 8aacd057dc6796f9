"""Costs as ratios measured in one run: `nox -s bench`.

A ratio compares two things timed one after the other on the same machine, so it survives a slow or a busy one; the
absolute figures beside it do not and are for orientation.
"""
