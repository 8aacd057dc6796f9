"""Engines that know one set of names for all kinds of entries, or tell another reason than the first."""

from __future__ import annotations

from collections.abc import Sequence

from kvassay_reference.release import registry
from kvassay_reference.release.registry import Registry

from ...adapters.base import Rejected
from ..base import Fault, found
from .base import Request, Result, case


def names(document: Registry) -> list[str]:
    """The names of all entries of a registry."""
    return [
        *(one.id for one in document.sources),
        *(one.name for one in document.pipelines),
        *(one.id for one in document.evaluations),
        *(one.name for one in document.interfaces),
    ]


class OneSetOfNames(Fault):
    """Entries of all kinds stand in one table of names."""

    requirement = "REL-002"
    killed_by = case("registry/names-across-kinds")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        known = names(document)
        twice = [("PIPELINE_TWICE", name) for at, name in enumerate(known) if name in known[:at]]
        return [*twice, *super().rel_violations(document)]


class ReferencesToAnything(Fault):
    """A source is known where any entry has its name."""

    requirement = "REL-002"
    killed_by = case("registry/references-mean-one-kind")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        known = names(document)
        return [one for one in super().rel_violations(document) if one[0] != "SOURCE_UNKNOWN" or one[1] not in known]


class PipelinesOfAnyKind(Fault):
    """A result's pipeline is known where any entry has its name."""

    requirement = "REL-010"
    killed_by = case("registry/references-mean-one-kind")

    def rel_violations(self, document: Registry) -> Sequence[tuple[str, str]]:
        known = names(document)
        return [one for one in super().rel_violations(document) if one[0] != "UNKNOWN_PIPELINE" or one[1] not in known]


class RankingBeforeNames(Fault):
    """A ranking is refused before it is known of what."""

    requirement = "REL-055"
    killed_by = case("compare/order-of-the-reasons")

    def release_compare(self, request: Request) -> Result:
        self.rel_registry(request)
        if request["rank_by"] is not None:
            raise Rejected("SOURCE_RESULTS_RANKED", request["rank_by"])
        return super().release_compare(request)


class NamesBeforeTheRegistry(Fault):
    """Names are looked up before the registry is judged."""

    requirement = "REL-055"
    killed_by = case("compare/order-of-the-reasons")

    def release_compare(self, request: Request) -> Result:
        known = {one["name"] for one in request["document"]["pipelines"]}
        for name in (request["left"], request["right"]):
            if name not in known:
                raise Rejected("UNKNOWN_PIPELINE", name)
        return super().release_compare(request)


class RankingOfTheSame(Fault):
    """A pipeline is ranked beside itself."""

    requirement = "REL-009"
    killed_by = case("compare/order-of-the-reasons")

    def release_compare(self, request: Request) -> Result:
        same = request["left"] == request["right"]
        return super().release_compare({**request, "rank_by": None} if same else request)


class MetricsBeforeAnswers(Fault):
    """Metrics are judged before the three answers."""

    requirement = "REL-055"
    killed_by = case("classify/order-of-the-reasons")

    rel_registry_rules = sorted(registry.RULES, key=lambda rule: rule.reason == "INTERFACE_INCONSISTENT")


class SweepsBeforeQuality(Fault):
    """Sweeps are judged before what is known of quality."""

    requirement = "REL-055"
    killed_by = case("sensitivity/order-of-the-reasons")

    def release_sensitivity(self, request: Request) -> Result:
        for sweep in request["sweeps"]:
            for point in sweep["points"]:
                others = self.rel_strangers(request["controls"], point, sweep["control"])
                if others:
                    raise Rejected("SWEEP_CHANGES_OTHER_CONTROL", ", ".join(others))
        return super().release_sensitivity(request)


FAULTS = found(globals())
"""In the order of the cases."""
