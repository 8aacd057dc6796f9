"""Faults of costs and of service ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvassay_reference.quality import costs, ledgers
from kvassay_reference.quality.costs import Sizes
from kvassay_reference.quality.runs import Chain, Run

from ..base import Fault, found, spoiled
from .base import Request, Result, case


class KeysTwice(Fault):
    """A row is twice its key, as where K and V are alike."""

    requirement = "QLT-021"
    killed_by = case("cost/widths-of-keys-and-values", "cost/real")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        alike = replace(sizes, value_channels=sizes.key_channels, value_item_bytes=sizes.key_item_bytes)
        return super().qlt_cost(run, lists, alike, resident, reference)


class KeysAlone(Fault):
    """A row is its key."""

    requirement = "QLT-021"
    killed_by = case("cost/rows", "cost/pages", "cost/widths-of-keys-and-values")

    def qlt_sizes(self, said: Request) -> Sizes:
        return replace(super().qlt_sizes(said), value_item_bytes=0)


class CandidatesWithDuplicates(Fault):
    """Candidate bytes follow the ids as they were returned."""

    requirement = "QLT-022"
    killed_by = case("cost/rows", "cost/candidates-and-units")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        for one, line in zip(lists, made["lists"], strict=True):
            line["candidate_bytes"] = len(one.returned) * sizes.candidate_bytes
        made["totals"]["candidate_bytes"] = sum(line["candidate_bytes"] for line in made["lists"])
        return made


class DescriptorsOfCandidates(Fault):
    """Every candidate has its descriptor read."""

    requirement = "QLT-022"
    killed_by = case("cost/pages", "cost/candidates-and-units")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        several = [one._replace(chosen=tuple(dict.fromkeys(one.returned))) for one in lists]
        made, right = (super(DescriptorsOfCandidates, self).qlt_cost(run, each, sizes, resident, reference)
                       for each in (several, lists))  # fmt: skip
        for mine, theirs in zip(right["lists"], made["lists"], strict=True):
            mine["descriptor_bytes"] = theirs["descriptor_bytes"]
        right["totals"]["descriptor_bytes"] = made["totals"]["descriptor_bytes"]
        return right


class DescriptorsOfRows(Fault):
    """Descriptors follow expanded rows."""

    requirement = "QLT-022"
    killed_by = case("cost/pages", "cost/clusters", "cost/candidates-and-units")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        for one, line in zip(lists, made["lists"], strict=True):
            line["descriptor_bytes"] = len(one.expanded) * sizes.descriptor_bytes
        made["totals"]["descriptor_bytes"] = sum(line["descriptor_bytes"] for line in made["lists"])
        return made


class ProbeAQueryHead(Fault):
    """What the search reads is read again for each query head."""

    requirement = "QLT-023"
    killed_by = case("cost/search")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        made["totals"]["probe_bytes"] = sizes.probe_bytes * len(run.place)
        return made


class ProbeOfUnreadLists(Fault):
    """Lists that nobody reads are searched for, too."""

    requirement = "QLT-023"
    killed_by = case("cost/search", "cost/rows-by-kv-head")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        for line in made["lists"]:
            line["probe_bytes"] = sizes.probe_bytes
        made["totals"]["probe_bytes"] = sizes.probe_bytes * len(lists)
        return made


class MacsAList(Fault):
    """Multiply-adds follow lists, as if a group multiplied once."""

    requirement = "QLT-023"
    killed_by = case("cost/search", "cost/widths-of-keys-and-values")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        made["totals"]["selector_macs"] = sizes.probe_macs * len(lists)
        return made


class RowsAQueryHead(Fault):
    """Rows of a group are read by each of its query heads."""

    requirement = "QLT-024"
    killed_by = case("cost/rows-by-kv-head", "cost/real")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        made["totals"]["support_bytes"] = sizes.row_bytes * sum(len(lists[one].support) for one in run.place)
        return made


class RowsOnceForAllHeads(Fault):
    """A row is counted once for the layer, whichever K/V heads read it."""

    requirement = "QLT-024"
    killed_by = case("cost/rows-by-kv-head", "cost/real")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        every = {row for which in run.place for row in lists[which].support}
        made["totals"]["support_bytes"] = sizes.row_bytes * len(every)
        return made


class UnreadHeadsRead(Fault):
    """Lists of K/V heads that nobody reads are fetched all the same."""

    requirement = "QLT-024"
    killed_by = case("cost/rows-by-kv-head")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        if run.said["per"] == "kv_head":
            rows = sum(len(one.support) for one in lists)
            made["totals"]["support_bytes"] = rows * sizes.row_bytes
        return made


class OverlapReadTwice(Fault):
    """Persistent rows come beside the rows of the units, also where they are the same."""

    requirement = "QLT-024"
    killed_by = case("cost/clusters", "cost/persistent-row-in-a-unit")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        extra = sum(one.repeated for which, one in enumerate(lists) if which in run.place)
        made["totals"]["support_bytes"] += extra * sizes.row_bytes
        return made


class ResidentsMoved(Fault):
    """Resident rows are moved again."""

    requirement = "QLT-025"
    killed_by = case("cost/rows", "cost/resident-rows")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        return super().qlt_cost(run, lists, sizes, [[] for _ in resident], reference)


class ResidentForAllHeads(Fault):
    """A position that is resident for one K/V head is so for all."""

    requirement = "QLT-025"
    killed_by = case("cost/resident-rows", "cost/real")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        every = sorted({position for one in resident for position in one})
        return super().qlt_cost(run, lists, sizes, [every for _ in resident], reference)


class ResidentsSubtracted(Fault):
    """The number of resident rows is taken off, whether they are in the support or not."""

    requirement = "QLT-025"
    killed_by = case("cost/resident-rows", "cost/real")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        rows = [max(0, one["support_rows"] - len(own)) for one, own in zip(made["kv_heads"], resident, strict=True)]
        made["totals"]["transfer_bytes"] = sum(rows) * sizes.row_bytes
        return made


class SetupARow(Fault):
    """Each row that moves is a transfer of its own."""

    requirement = "QLT-026"
    killed_by = case("cost/pages", "cost/runs-of-neighbours", "cost/real")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        for one in made["kv_heads"]:
            one["transfers"] = one["transfer_rows"]
            one["setup_bytes"] = one["transfers"] * sizes.setup_bytes
        made["totals"]["setup_bytes"] = sum(one["setup_bytes"] for one in made["kv_heads"])
        return made


class SetupOfTheSupport(Fault):
    """Runs are counted in the support, as if a resident row did not split them."""

    requirement = "QLT-026"
    killed_by = case("cost/runs-of-neighbours")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        whole = super().qlt_cost(run, lists, sizes, [[] for _ in resident], reference)
        for one, other in zip(made["kv_heads"], whole["kv_heads"], strict=True):
            one.update(transfers=other["transfers"], setup_bytes=other["setup_bytes"])
        made["totals"]["setup_bytes"] = whole["totals"]["setup_bytes"]
        return made


class SetupOnce(Fault):
    """All rows of a K/V head are one transfer."""

    requirement = "QLT-026"
    killed_by = case("cost/pages", "cost/runs-of-neighbours")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        for one in made["kv_heads"]:
            one["transfers"] = min(1, one["transfers"])
            one["setup_bytes"] = one["transfers"] * sizes.setup_bytes
        made["totals"]["setup_bytes"] = sum(one["setup_bytes"] for one in made["kv_heads"])
        return made


class ExpansionOfTheSupport(Fault):
    """The expansion ratio counts persistent rows."""

    requirement = "QLT-027"
    killed_by = case("cost/rows", "cost/pages", "cost/expansion")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        several = [one._replace(expanded=one.support) for one in lists]
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        other = super().qlt_cost(run, several, sizes, resident, reference)
        made["totals"]["expansion_ratio"] = other["totals"]["expansion_ratio"]
        return made


class ExpansionOfThePage(Fault):
    """The expansion ratio is the page's size."""

    requirement = "QLT-027"
    killed_by = case("cost/expansion")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        if "rows" in run.said["unit"]:
            for line in made["lists"]:
                line["expansion_ratio"] = float(run.said["unit"]["rows"]) if line["expansion_ratio"] else None
        return made


class MeanOfExpansions(Fault):
    """The ratio of all lists is the mean of their ratios."""

    requirement = "QLT-027"
    killed_by = case("cost/expansion")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        known = [line["expansion_ratio"] for line in made["lists"] if line["expansion_ratio"] is not None]
        made["totals"]["expansion_ratio"] = sum(known) / len(known) if known else None
        return made


class ExpansionOfNothing(Fault):
    """Without units the expansion ratio is zero."""

    requirement = "QLT-027"
    killed_by = case("cost/expansion")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        for line in [*made["lists"], made["totals"]]:
            line["expansion_ratio"] = line["expansion_ratio"] or 0.0
        return made


class FalseRowsWithoutReference(Fault):
    """Without a reference no row is false, and that is told as zero."""

    requirement = "QLT-028"
    killed_by = case("cost/no-reference")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        if reference is None:
            reference = [one.support for one in lists]
        return super().qlt_cost(run, lists, sizes, resident, reference)


class FalseRowsByQueryHead(Fault):
    """A row that one query head of a group does not need is false."""

    requirement = "QLT-028"
    killed_by = case("cost/false-rows")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        if reference is not None:
            pairs = [(set(lists[which].support), set(reference[which])) for which in run.place]
            made["totals"]["false_positive_bytes"] = sizes.row_bytes * sum(len(read - need) for read, need in pairs)
        return made


class FalseRowsSwapped(Fault):
    """False positives and false negatives are exchanged."""

    requirement = "QLT-028"
    killed_by = case("cost/rows", "cost/pages", "cost/false-rows")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        both = made["totals"]
        both["false_positive_bytes"], both["false_negative_bytes"] = (
            both["false_negative_bytes"],
            both["false_positive_bytes"],
        )
        return made


class FalseRowsOfUnits(Fault):
    """Persistent rows are never false."""

    requirement = "QLT-028"
    killed_by = case("cost/rows", "cost/pages", "cost/false-rows")

    def qlt_cost(self, run: Run, lists: Sequence[Chain], sizes: Sizes, resident: Any, reference: Any) -> Result:
        made = super().qlt_cost(run, lists, sizes, resident, reference)
        if reference is not None:
            for head, which in enumerate(costs.readers(run)):
                wanted = costs.rows_read(reference, which) | set(run.said["persistent"])
                read = costs.rows_read([one.support for one in lists], which)
                made["kv_heads"][head]["false_positive_bytes"] = len(read - wanted) * sizes.row_bytes
        return made


class ReferenceUnchecked(Fault):
    """Reference rows that are not there are dropped."""

    requirement = "QLT-028"
    killed_by = case("cost/refused-reference-beyond-the-rows", "cost/refused-hidden-reference")

    def quality_cost(self, request: Request) -> Result:
        if "reference" in request:
            run = self.qlt_run(request["run"])
            kept = [[one for one in rows if one in set(run.legal)] for rows in request["reference"]]
            request = {**request, "reference": kept}
        return super().quality_cost(request)


# --- ledgers of a service ------------------------------------------------------------------------------------------

GPU = ("gpu_persistent_bytes", "gpu_staging_bytes", "gpu_workspace_bytes", "gpu_duplicate_bytes", "gpu_reserved_bytes")


class SumOfPeaks(Fault):
    """The peak is the sum of the parts' own peaks."""

    requirement = "QLT-029"
    killed_by = case("capacity/peak-of-one-moment")

    def quality_capacity(self, request: Request) -> Result:
        made = super().quality_capacity(request)
        return {**made, "gpu_peak_bytes": sum(max(one[name] for one in request["moments"]) for name in GPU)}


class LastPeak(Fault):
    """Of equal moments the last is named."""

    requirement = "QLT-029"
    killed_by = case("capacity/equal-peaks")

    def quality_capacity(self, request: Request) -> Result:
        made = super().quality_capacity(request)
        held = [sum(one[name] for name in GPU) for one in request["moments"]]
        last = len(held) - 1 - held[::-1].index(max(held))
        return {**made, "gpu_peak_moment": last}


def without(name: str) -> type[Fault]:
    """The fault that leaves one part out of the GPU's bytes."""
    part = name.split("_")[1]

    def quality_capacity(self: Fault, request: Request) -> Result:
        """The rest."""
        moments = [{**one, name: 0} for one in request["moments"]]
        return super(engine, self).quality_capacity({**request, "moments": moments})

    engine = spoiled(
        Fault,
        __name__,
        f"Without{part.title()}Bytes",
        f"The GPU's bytes are told without the {part} bytes.",
        "QLT-029",
        case(f"capacity/{part}-counts", "capacity/peak-of-one-moment"),
        quality_capacity=quality_capacity,
    )
    return engine


WithoutPersistent, WithoutStaging, WithoutWorkspace, WithoutDuplicate, WithoutReserved = map(without, GPU)


class RatioOverResident(Fault):
    """The GPU's ratio is over what is held anywhere at that moment."""

    requirement = "QLT-030"
    killed_by = case("capacity/over-logical-bytes", "capacity/peak-of-one-moment")

    def quality_capacity(self, request: Request) -> Result:
        made = super().quality_capacity(request)
        moment = request["moments"][made["gpu_peak_moment"]]
        held = made["gpu_peak_bytes"] + moment["cpu_bytes"] + moment["secondary_bytes"]
        return {**made, "r_gpu": made["gpu_peak_bytes"] / held if held else None}


class RehearsalIsMetadata(Fault):
    """Rehearsal state counts as metadata."""

    requirement = "QLT-030"
    killed_by = case("capacity/metadata")

    def quality_capacity(self, request: Request) -> Result:
        index = request["index_bytes"] + request["rehearsal_bytes"]
        return super().quality_capacity({**request, "index_bytes": index})


class IndexIsMetadata(Fault):
    """Metadata is the index alone."""

    requirement = "QLT-030"
    killed_by = case("capacity/metadata")

    def quality_capacity(self, request: Request) -> Result:
        return super().quality_capacity({**request, "directory_bytes": 0, "descriptor_bytes": 0})


class RatioOverNothing(Fault):
    """A ratio over no bytes is zero."""

    requirement = "QLT-030"
    killed_by = case("capacity/no-logical-bytes")

    def quality_capacity(self, request: Request) -> Result:
        made = super().quality_capacity(request)
        return {**made, "r_gpu": made["r_gpu"] or 0.0, "r_metadata": made["r_metadata"] or 0.0}


class WaitersForgotten(Fault):
    """Requested bytes count each transfer once."""

    requirement = "QLT-031"
    killed_by = case("transfer/base", "transfer/waiters-and-padding")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        for tier in made["tiers"]:
            tier["requested_bytes"] -= tier["coalesced_bytes"]
        return made


class WaitersSaveAll(Fault):
    """The first waiter of a transfer saves its bytes, too."""

    requirement = "QLT-031"
    killed_by = case("transfer/base", "transfer/waiters-and-padding")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        for tier in made["tiers"]:
            tier["coalesced_bytes"] = tier["requested_bytes"]
        return made


class SavedWhatMoved(Fault):
    """Padding counts as saved for each further waiter."""

    requirement = "QLT-031"
    killed_by = case("transfer/base", "transfer/waiters-and-padding")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        for tier in made["tiers"]:
            mine = [one for one in request["transfers"] if one["tier"] == tier["tier"]]
            tier["coalesced_bytes"] = sum(one["moved_bytes"] * (one["waiters"] - 1) for one in mine)
        return made


class HitsAreMoved(Fault):
    """Resident bytes count as moved."""

    requirement = "QLT-031"
    killed_by = case("transfer/base", "transfer/nothing-moved")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        for tier in made["tiers"]:
            tier["moved_bytes"] += tier["resident_hit_bytes"]
        return made


class TiersOfTransfersAlone(Fault):
    """A tier from which nothing moved is not told, although it was hit."""

    requirement = "QLT-031"
    killed_by = case("transfer/base", "transfer/nothing-moved")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        names = {one["tier"] for one in request["transfers"]}
        return {**made, "tiers": [tier for tier in made["tiers"] if tier["tier"] in names]}


class AlwaysTheSum(Fault):
    """The denominator is always the sum of times."""

    requirement = "QLT-032"
    killed_by = case("transfer/overlapping-transfers", "transfer/base")

    def quality_transfer(self, request: Request) -> Result:
        return super().quality_transfer({**request, "critical_path": "sum"})


class AlwaysBusy(Fault):
    """The denominator is always the time in which any transfer was under way."""

    requirement = "QLT-032"
    killed_by = case("transfer/overlapping-transfers", "transfer/base")

    def quality_transfer(self, request: Request) -> Result:
        return super().quality_transfer({**request, "critical_path": "busy"})


class AllWaitsExposed(Fault):
    """Every wait of attention counts, also where no transfer was under way."""

    requirement = "QLT-032"
    killed_by = case("transfer/base", "transfer/waits-without-transfers")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        exposed = sum(end - begin for begin, end in request["waits"])
        path = made["critical_path_ms"]
        return {**made, "exposed_ms": exposed, "r_overlap": 1 - exposed / path if path else None}


class WaitsAdded(Fault):
    """Two waits at one time count twice."""

    requirement = "QLT-032"
    killed_by = case("transfer/waits-without-transfers")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        each = [super(WaitsAdded, self).quality_transfer({**request, "waits": [one]}) for one in request["waits"]]
        exposed = sum(one["exposed_ms"] for one in each)
        path = made["critical_path_ms"]
        return {**made, "exposed_ms": exposed, "r_overlap": 1 - exposed / path if path else None}


class OverlapOfNothing(Fault):
    """Without transfers everything overlaps."""

    requirement = "QLT-032"
    killed_by = case("transfer/nothing-moved")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        return {**made, "r_overlap": 1.0 if made["r_overlap"] is None else made["r_overlap"]}


class RateOverDma(Fault):
    """The effective rate is over the sum of times."""

    requirement = "QLT-032"
    killed_by = case("transfer/overlapping-transfers", "transfer/base")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        moved = sum(one["moved_bytes"] for one in request["transfers"])
        return {**made, "bytes_per_ms": moved / made["dma_ms"] if made["dma_ms"] else None}


class GatherIsSubmission(Fault):
    """Submission begins with the gather."""

    requirement = "QLT-032"
    killed_by = case("transfer/base")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        return {**made, "gather_ms": 0.0, "submission_ms": made["submission_ms"] + made["gather_ms"]}


class UnorderedTimesSorted(Fault):
    """Times that run backwards are put in order."""

    requirement = "QLT-032"
    killed_by = case(
        "transfer/begins-before-submission",
        "transfer/submitted-before-it-was-gathered",
        "transfer/ends-before-it-begins",
        "transfer/wait-ends-before-it-begins",
        "transfer/second-transfer",
    )

    def quality_transfer(self, request: Request) -> Result:
        names = ("gathering_ms", "submitted_ms", "started_ms", "ended_ms")
        several = [
            {**one, **dict(zip(names, sorted(one[name] for name in names), strict=True))}
            for one in request["transfers"]
        ]
        waits = [sorted(one) for one in request["waits"]]
        return super().quality_transfer({**request, "transfers": several, "waits": waits})


class PercentilesOfTransfers(Fault):
    """Percentiles are of the transfers' sizes, each with the same weight."""

    requirement = "QLT-033"
    killed_by = case("transfer/in-flight-by-time", "transfer/base")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        sizes = sorted(one["moved_bytes"] for one in request["transfers"])
        if not sizes or made["in_flight_bytes"]["p50"] is None:
            return made
        picked = {f"p{n}": sizes[min(len(sizes) - 1, n * len(sizes) // 100)] for n in (50, 95, 99)}
        return {**made, "in_flight_bytes": picked}


class GapsLeftOut(Fault):
    """Time without a transfer is left out of the percentiles."""

    requirement = "QLT-033"
    killed_by = case("transfer/in-flight-by-time")

    def quality_transfer(self, request: Request) -> Result:
        several = sorted(request["transfers"], key=lambda one: one["started_ms"])
        clock = 0.0
        moved: list[Request] = []
        for one in several:
            gap = max(0.0, one["started_ms"] - clock) if moved else one["started_ms"]
            shift = gap if not moved or gap > 0 else 0.0
            start = one["started_ms"] - shift
            moved.append(
                {
                    **one,
                    "started_ms": start,
                    "ended_ms": one["ended_ms"] - shift,
                    "submitted_ms": 0.0,
                    "gathering_ms": 0.0,
                }
            )
            clock = max(clock, one["ended_ms"])
        made = super().quality_transfer(request)
        other = super().quality_transfer({**request, "transfers": moved})
        return {**made, "in_flight_bytes": other["in_flight_bytes"]}


class RequestedBytesInFlight(Fault):
    """Bytes in flight are those that were asked for."""

    requirement = "QLT-033"
    killed_by = case("transfer/in-flight-by-time", "transfer/base")

    def quality_transfer(self, request: Request) -> Result:
        several = [{**one, "moved_bytes": one["requested_bytes"]} for one in request["transfers"]]
        made = super().quality_transfer(request)
        other = super().quality_transfer({**request, "transfers": several})
        return {**made, "in_flight_bytes": other["in_flight_bytes"]}


class PercentileStrictlyAbove(Fault):
    """A level that lasts exactly the share of the time is exceeded by the next."""

    requirement = "QLT-033"
    killed_by = case("transfer/in-flight-by-time")

    def quality_transfer(self, request: Request) -> Result:
        made = super().quality_transfer(request)
        levels = ledgers.in_flight(request["transfers"])
        return {**made, "in_flight_bytes": {f"p{n}": ledgers.quantile(levels, n / 100 + 1e-9) for n in (50, 95, 99)}}


class MeanOfRates(Fault):
    """A rate is the mean of the steps' rates."""

    requirement = "QLT-034"
    killed_by = case("rates/base", "rates/of-each-kind")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        pairs = {
            "stale_rate": ("stale_entries", "distinct_candidates"),
            "index_miss_rate": ("index_misses", "index_lookups"),
            "pool_miss_rate": ("pool_misses", "pool_lookups"),
        }
        for name, (part, whole) in pairs.items():
            each = [one[part] / one[whole] for one in steps if one[whole]]
            made[name] = sum(each) / len(each) if each else None
        return made


class StaleOverAllCandidates(Fault):
    """Stale entries are a share of candidates with their duplicates."""

    requirement = "QLT-034"
    killed_by = case("rates/base", "rates/of-each-kind")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        stale = sum(one["stale_entries"] for one in steps)
        return {**made, "stale_rate": stale / made["candidates"] if made["candidates"] else None}


class MissesAdded(Fault):
    """Misses of the pool count as misses of the index."""

    requirement = "QLT-034"
    killed_by = case("rates/base", "rates/of-each-kind")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        misses = sum(one["index_misses"] + one["pool_misses"] for one in steps)
        asked = sum(one["index_lookups"] + one["pool_lookups"] for one in steps)
        return {**made, "index_miss_rate": misses / asked if asked else None}


class FallbacksOfMeasuredSteps(Fault):
    """Fallbacks are a share of the steps with a dense reference."""

    requirement = "QLT-034"
    killed_by = case("rates/base", "rates/of-each-kind")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        known = [one for one in steps if one["omitted_mass"] is not None]
        rate = sum(one["fell_back"] for one in known) / len(known) if known else None
        return {**made, "fallback_rate": rate}


class RatesOfNothing(Fault):
    """A rate over nothing is zero."""

    requirement = "QLT-034"
    killed_by = case("rates/of-nothing")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        names = ("stale_rate", "index_miss_rate", "pool_miss_rate", "fallback_rate")
        return {**made, **{name: made[name] or 0.0 for name in names}}


class CountsClamped(Fault):
    """A part that is larger than its whole is cut down to it."""

    requirement = "QLT-034"
    killed_by = case(
        "rates/more-distinct-than-candidates",
        "rates/more-stale-than-distinct",
        "rates/more-index-misses",
        "rates/more-pool-misses",
    )

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        cut = []
        for one in steps:
            distinct = min(one["distinct_candidates"], one["candidates"])
            cut.append(
                {
                    **one,
                    "distinct_candidates": distinct,
                    "stale_entries": min(one["stale_entries"], distinct),
                    "index_misses": min(one["index_misses"], one["index_lookups"]),
                    "pool_misses": min(one["pool_misses"], one["pool_lookups"]),
                }
            )
        return super().qlt_rates(cut)


class MeanAlone(Fault):
    """The worst is the mean."""

    requirement = "QLT-035"
    killed_by = case("rates/worst-step", "rates/base")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        return {**made, "worst_omitted_mass": made["mean_omitted_mass"]}


class UnmeasuredIsZero(Fault):
    """A step without a dense reference has lost nothing."""

    requirement = "QLT-035"
    killed_by = case("rates/worst-step", "rates/base")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        filled = [{**one, "omitted_mass": one["omitted_mass"] or 0.0} for one in steps]
        return super().qlt_rates(filled)


class LastWorstStep(Fault):
    """Of equal steps the last is named."""

    requirement = "QLT-035"
    killed_by = case("rates/worst-step", "rates/base")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        if made["worst_step"] is None:
            return made
        worst = max(i for i, one in enumerate(steps) if one["omitted_mass"] == made["worst_omitted_mass"])
        return {**made, "worst_step": worst}


class WorstAmongMeasured(Fault):
    """The worst step is counted among the measured ones."""

    requirement = "QLT-035"
    killed_by = case("rates/worst-step", "rates/base")

    def qlt_rates(self, steps: Sequence[Request]) -> Result:
        made = super().qlt_rates(steps)
        if made["worst_step"] is None:
            return made
        skipped = sum(one["omitted_mass"] is None for one in steps[: made["worst_step"]])
        return {**made, "worst_step": made["worst_step"] - skipped}


FAULTS = found(globals())
