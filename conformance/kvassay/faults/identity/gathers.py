"""Faults of *Gathers, states and outputs*, as documents tell of them (IDN-025 to IDN-030)."""

from __future__ import annotations

from ..base import found
from .base import Blind


class EventsIgnored(Blind):
    """Rows are read before they have arrived (vllm#52360)."""

    requirement = "IDN-026"
    killed_by = (
        "identity/admit/step-order",
        "identity/admit/step-event",
        "identity/admit/gather-not-visible",
        "identity/admit/gather-event",
        "identity/admit/partial-before-visible",
    )
    blind = frozenset({"STEP_OUT_OF_ORDER", "ROW_NOT_VISIBLE", "VISIBILITY_EVENT_MISMATCH", "READ_BEFORE_VISIBLE"})


class GatherUnchecked(Blind):
    """A gather receipt is believed: positions, shapes, copies."""

    requirement = "IDN-025"
    killed_by = (
        "identity/admit/gather-dense-reindex",
        "identity/admit/gather-shape-of-values",
        "identity/admit/gather-released-replica",
        "identity/admit/gather-allocation-as-replica",
        "identity/session/partial-stale-replica",
        "identity/session/partial-reindexed",
    )
    blind = frozenset(
        {"GATHER_OF_OTHER_POSITIONS", "GATHER_SHAPE_MISMATCH", "STALE_REPLICA_GENERATION", "STALE_LEASE_GENERATION"}
    )


class SelectedIsFull(Blind):
    """A merge over the selected rows is published as attention over all of them."""

    requirement = "IDN-028"
    killed_by = (
        "identity/admit/output-full-claim",
        "identity/admit/output-exact-promise",
        "identity/admit/output-exact-lane",
        "identity/admit/exact-lane-with-every-row",
    )
    blind = frozenset({"SUPPORT_OVERCLAIMED", "EXACTNESS_OVERCLAIMED"})


class ClockWithoutOrigin(Blind):
    """A budget without an event that it counts from is accepted (vllm#49829)."""

    requirement = "IDN-029"
    killed_by = ("identity/admit/deadline-origin", "identity/admit/deadline-missed")
    blind = frozenset({"DEADLINE_WITHOUT_ORIGIN", "DEADLINE_MISSED"})


class ContinuesWithWhatArrived(Blind):
    """At the deadline attention runs over the rows that are there (dynamo#15079)."""

    requirement = "IDN-030"
    killed_by = (
        "identity/admit/fallback-continue",
        "identity/admit/fallback-other",
        "identity/admit/output-what-arrived",
        "identity/admit/fallback-promoted",
        "identity/admit/fallback-broadened",
        "identity/admit/fallback-rejected",
    )
    blind = frozenset({"UNKNOWN_FALLBACK", "FALLBACK_NOT_DECLARED", "SILENT_PARTIAL_SUPPORT"})


FAULTS = found(globals())
