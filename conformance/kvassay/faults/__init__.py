"""Seeded faults: the reference with one realistic defect each, and the self-test that they all die."""
