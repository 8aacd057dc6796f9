"""Receipts of selections: the rules of each method in their order, as pairs of truth and reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Document = Mapping[str, Any]
Rule = tuple[bool, str]
"""Whether a rule holds, and the reason when it does not."""


def ascending(items: Sequence[int]) -> bool:
    """Whether each item is larger than the one before."""
    return all(a < b for a, b in pairwise(items))


def within(items: Sequence[int], limit: int) -> bool:
    """Whether each item is one of 0 .. limit - 1."""
    return all(0 <= item < limit for item in items)


def source_rules(document: Document) -> Iterator[Rule]:
    """A legal source, and a receipt of it and no other."""
    own, receipt = document["source"], document["receipt"]
    yield bool(own["kv_head_of"]) and within(own["kv_head_of"], own["kv_heads"]), "HEAD_MAP_INVALID"
    yield own["layer"] < own["layers"], "LAYER_OUT_OF_RANGE"
    yield receipt["checkpoint_generation"] == own["checkpoint_generation"], "STALE_CHECKPOINT_GENERATION"
    yield receipt["cache_generation"] == own["cache_generation"], "STALE_CACHE_GENERATION"
    yield receipt["selector_generation"] == own["selector_generation"], "STALE_SELECTOR_GENERATION"
    yield receipt["layer"] == own["layer"], "RECEIPT_OF_OTHER_HEAD"
    yield receipt["frontier"] <= own["frontier"], "FRONTIER_BEYOND_COMMIT"
    yield receipt["frontier"] >= own["frontier"], "FRONTIER_BEHIND_COMMIT"


def channel_rules(lists: Sequence[Sequence[int]], own: Document, count: int) -> Iterator[Rule]:
    """One ascending list of ``count`` channels a K/V head."""
    yield len(lists) == own["kv_heads"] and all(len(one) == count for one in lists), "CHANNELS_COUNT_MISMATCH"
    for one in lists:
        yield within(one, own["channels"]), "CHANNELS_OUT_OF_RANGE"
        yield ascending(one), "CHANNELS_NOT_ASCENDING"


def position_rules(items: Sequence[int], limit: int, reason: str = "CANDIDATE_OUT_OF_RANGE") -> Iterator[Rule]:
    """Ascending positions or pages below a limit."""
    yield within(items, limit), reason
    yield ascending(items), "CANDIDATES_NOT_ASCENDING"


def claim_rule(document: Document, whole: bool) -> Rule:
    """Exact is what rests on every committed row."""
    return whole or document["receipt"]["claim"] != "exact", "EXACTNESS_OVERCLAIMED"


def sparq_rules(document: Document) -> Iterator[Rule]:
    """Receipts of SparQ."""
    yield from source_rules(document)
    own, settings, receipt = document["source"], document["settings"], document["receipt"]
    rows, width = own["frontier"], own["channels"]
    yield 1 <= settings["channels"] <= width, "CHANNELS_OUT_OF_RANGE"
    yield settings["local"] <= settings["rows"], "LOCAL_WINDOW_EXCEEDS_BUDGET"
    yield from channel_rules(receipt["channels"], own, settings["channels"])
    for layout in ("by_channel", "by_row"):
        held = document["layouts"][layout]
        yield held["cache_generation"] == own["cache_generation"], "STALE_CACHE_GENERATION"
        yield held["rows"] == rows, "LAYOUT_BEHIND_COMMIT"
    yield document["mean"]["cache_generation"] == own["cache_generation"], "STALE_CACHE_GENERATION"
    yield document["mean"]["rows"] == rows, "MEAN_POPULATION_MISMATCH"
    kept = min(settings["rows"], rows)
    newest = set(range(max(0, rows - settings["local"]), rows))
    yield len(receipt["positions"]) == own["kv_heads"], "SHAPE_MISMATCH"
    for one in receipt["positions"]:
        yield from position_rules(one, rows)
        yield len(one) == kept, "SELECTION_COUNT_MISMATCH"
        yield newest <= set(one), "LOCAL_ROW_MISSING"
    yield len(receipt["mass"]) == len(own["kv_head_of"]), "SHAPE_MISMATCH"
    yield all(0 <= share <= 1 for share in receipt["mass"]), "MASS_OUT_OF_RANGE"
    yield receipt["dense_scalars"] == 2 * (rows + 1) * width, "TRAFFIC_SCALARS_MISMATCH"
    moved = rows * settings["channels"] + 2 * (kept + 2) * width
    yield receipt["sparq_scalars"] == moved, "TRAFFIC_SCALARS_MISMATCH"
    yield claim_rule(document, kept == rows)


def quest_rules(document: Document) -> Iterator[Rule]:
    """Receipts of Quest."""
    yield from source_rules(document)
    own, settings, receipt, pages = (document[name] for name in ("source", "settings", "receipt", "pages"))
    rows, size = own["frontier"], settings["page_rows"]
    starts = range(0, rows, size)
    yield [page["first_row"] for page in pages] == list(starts), "PAGES_NOT_CONTIGUOUS"
    for start, page in zip(starts, pages, strict=False):
        yield page["rows"] == min(size, rows - start), "PAGES_NOT_CONTIGUOUS"
        yield page["cache_generation"] == own["cache_generation"], "STALE_CACHE_GENERATION"
        yield page["metadata_rows"] == page["rows"], "METADATA_BEHIND_COMMIT"
    bounds, scores, heads = receipt["bounds"], receipt["row_scores"], len(own["kv_head_of"])
    yield [len(one) for one in bounds] == [len(starts)] * heads, "SHAPE_MISMATCH"
    yield [len(one) for one in scores] == [rows] * heads, "SHAPE_MISMATCH"
    for bound, score in zip(bounds, scores, strict=True):
        yield all(bound[i // size] >= value for i, value in enumerate(score)), "BOUND_BELOW_SCORE"
    groups = [[query] for query in range(heads)]
    if settings["scope"] == "kv-head":
        groups = [[q for q, head in enumerate(own["kv_head_of"]) if head == one] for one in range(own["kv_heads"])]
    yield len(receipt["pages"]) == len(groups), "SHAPE_MISMATCH"
    yield len(receipt["selected_scalars"]) == len(groups), "SHAPE_MISMATCH"
    for group, chosen, moved in zip(groups, receipt["pages"], receipt["selected_scalars"], strict=True):
        yield from page_rules(document, group, chosen)
        read = sum(pages[page]["rows"] for page in chosen)
        yield moved == 2 * read * own["channels"], "TRAFFIC_SCALARS_MISMATCH"
    yield receipt["metadata_scalars"] == 2 * len(pages) * own["channels"], "TRAFFIC_SCALARS_MISMATCH"
    yield claim_rule(document, all(len(chosen) == len(pages) for chosen in receipt["pages"]))


def page_rules(document: Document, group: Sequence[int], chosen: Sequence[int]) -> Iterator[Rule]:
    """One list of pages, for the query heads that share it."""
    settings, bounds, count = document["settings"], document["receipt"]["bounds"], len(document["pages"])
    yield from position_rules(chosen, count, "PAGE_OUT_OF_RANGE")
    dense = document["source"]["layer"] < settings["dense_layers"]
    yield not dense or len(chosen) == count, "DENSE_LAYER_SPARSE"
    due = (count if dense else min(settings["budget_pages"], count)) if group else 0
    yield len(chosen) == due, "SELECTION_COUNT_MISMATCH"
    if not group:
        return
    reserved = settings["last_page"] == "reserved"
    yield not reserved or count - 1 in chosen, "LAST_PAGE_MISSING"
    contest = range(count - 1 if reserved else count)
    strength = {page: max(bounds[query][page] for query in group) for page in contest}
    inside = [page for page in contest if page in chosen]
    outside = [page for page in contest if page not in chosen]
    fair = all(
        strength[left] > strength[right] or (strength[left] == strength[right] and left < right)
        for left in inside
        for right in outside
    )
    yield fair, "SELECTION_NOT_BEST"


def infinigen_rules(document: Document) -> Iterator[Rule]:
    """Prefetch receipts of InfiniGen."""
    yield from source_rules(document)
    own, settings, receipt = document["source"], document["settings"], document["receipt"]
    basis, columns, pool = document["basis"], document["columns"], document["pool"]
    yield own["layer"] >= settings["first_issue"] + 1, "SPECULATION_TOO_EARLY"
    yield receipt["issued_in_layer"] + 1 == own["layer"], "LAYER_NOT_ADJACENT"
    yield basis["error"] <= settings["tolerance"], "BASIS_NOT_ORTHOGONAL"
    yield columns["basis_generation"] == basis["generation"], "STALE_BASIS_GENERATION"
    yield receipt["basis_generation"] == basis["generation"], "STALE_BASIS_GENERATION"
    yield from channel_rules(columns["query"], own, settings["partial_channels"])
    yield columns["key"] == columns["query"], "COLUMNS_NOT_SHARED"
    yield receipt["columns_generation"] == columns["generation"], "STALE_COLUMNS_GENERATION"
    yield receipt["pool_generation"] == pool["generation"], "STALE_POOL_GENERATION"
    resident, rows = pool["resident"], own["frontier"]
    yield from position_rules(resident, rows)
    yield len(resident) <= pool["capacity"], "POOL_OVER_CAPACITY"
    read = set(own["kv_head_of"])
    yield len(receipt["counts"]) == len(read), "SHAPE_MISMATCH"
    yield all(1 <= count <= len(resident) for count in receipt["counts"]), "SELECTION_COUNT_MISMATCH"
    yield receipt["uncapped"] == sum(receipt["counts"]) // len(receipt["counts"]), "COUNT_NOT_EQUALISED"
    yield receipt["capped"] is (receipt["uncapped"] > settings["cap"]), "CAP_NOT_REPORTED"
    yield receipt["count"] == min(receipt["uncapped"], settings["cap"]), "SELECTION_COUNT_MISMATCH"
    yield len(receipt["positions"]) == own["kv_heads"], "SHAPE_MISMATCH"
    for head, chosen in enumerate(receipt["positions"]):
        yield from position_rules(chosen, rows)
        yield set(chosen) <= set(resident), "CANDIDATE_NOT_IN_POOL"
        yield len(chosen) == (receipt["count"] if head in read else 0), "SELECTION_COUNT_MISMATCH"
    yield receipt["row_channels"] == own["channels"], "REDUCED_ROWS_ATTENDED"
    yield receipt["attention_waits_for"] >= receipt["prefetch_event"], "READ_BEFORE_VISIBLE"
    yield claim_rule(document, all(len(receipt["positions"][head]) == rows for head in read))


RULES = {"sparq": sparq_rules, "quest": quest_rules, "infinigen": infinigen_rules}
"""Method to the rules of its receipts."""
