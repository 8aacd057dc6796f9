"""The ops of SparQ, Quest and InfiniGen of the built-in adapter: how a request becomes a call of the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from kvassay_reference.errors import Refusal
from kvassay_reference.selectors import receipts
from kvassay_reference.selectors.infinigen import RULES as INFINIGEN_RULES
from kvassay_reference.selectors.infinigen import Fetch, InfiniGen, Limits, Pool
from kvassay_reference.selectors.quest import RULES as QUEST_RULES
from kvassay_reference.selectors.quest import Policy, Quest
from kvassay_reference.selectors.receipts import Document, Rule
from kvassay_reference.selectors.rows import History
from kvassay_reference.selectors.sparq import RULES as SPARQ_RULES
from kvassay_reference.selectors.sparq import Sparq

from .reference_attention import refusals_named
from .reference_part import ReferencePart

Request = Mapping[str, Any]
Result = dict[str, Any]


class SelectorReference(ReferencePart):
    """The selectors' ops. A fault puts a method of its own in the place of one of the three."""

    own_profiles: ClassVar[frozenset[str]] = frozenset({"sparq", "quest", "infinigen", "selector-receipts"})
    own_variants: ClassVar[frozenset[str]] = frozenset({*SPARQ_RULES, *QUEST_RULES, *INFINIGEN_RULES})
    own_capabilities: ClassVar[Mapping[str, Any]] = {"selection.floor": "exact"}
    accumulate: ClassVar[str] = "float32"
    selector_sparq: ClassVar[Sparq] = Sparq()
    selector_quest: ClassVar[Quest] = Quest()
    selector_infinigen: ClassVar[InfiniGen] = InfiniGen()
    selector_pool: ClassVar[type[Pool]] = Pool

    # what all three share

    def selector_history(self, request: Request) -> History:
        """The rows of a request."""
        return History(
            q=self.inward(request["q"]),
            k=self.inward(request["k"]),
            v=self.inward(request["v"]) if "v" in request else None,
            kv_head_of=request["kv_head_of"],
            hidden=request.get("hidden", ()),
            accumulate=self.accumulate,
        )

    def selector_indices(self, lists: Sequence[Sequence[int]]) -> list[Any]:
        """Lists of integers as arrays of the reference's library."""
        return [self.inward(np.asarray(one, dtype=np.int64)) for one in lists]

    def selector_lists(self, arrays: Iterable[Any]) -> list[list[int]]:
        """Index arrays as lists of integers."""
        return [self.outward(one).tolist() for one in arrays]

    def selector_output(self, out: Any, lse: Any) -> Result:
        """Output and LSE of a reply."""
        return {"out": self.outward(out), "lse": self.outward(lse)}

    # SparQ

    def sparq_select(self, request: Request) -> Result:
        """Channels, proxies and rows."""
        with refusals_named():
            settings = (request["channels"], request["rows"], request["local"])
            found = self.selector_sparq.select(request["rule"], self.selector_history(request), *settings)
        return {
            "channels": self.selector_lists(found.channels),
            "temperature": self.outward(found.temperature),
            "proxy": self.outward(found.proxy),
            "positions": self.selector_lists(found.positions),
            "mass": self.outward(found.mass),
        }

    def sparq_attend(self, request: Request) -> Result:
        """Attention over given rows."""
        mass, mean = (self.inward(request[name]) if name in request else None for name in ("mass", "mean"))
        positions = self.selector_indices(request["positions"])
        with refusals_named():
            history = self.selector_history(request)
            return self.selector_output(*self.selector_sparq.attend(history, request["scale"], positions, mass, mean))

    def sparq_decode(self, request: Request) -> Result:
        """Selection and attention over it."""
        settings = [request[name] for name in ("channels", "rows", "local", "correct")]
        with refusals_named():
            found, out, lse = self.selector_sparq.decode(
                request["rule"], self.selector_history(request), request["scale"], *settings
            )
        return {
            "positions": self.selector_lists(found.positions),
            "mass": self.outward(found.mass),
            **self.selector_output(out, lse),
        }

    def sparq_mean(self, request: Request) -> Result:
        """The running mean."""
        with refusals_named():
            mean, rows = self.selector_sparq.running_mean(
                self.inward(request["mean"]), request["rows"], self.inward(request["v"]), self.accumulate
            )
        return {"mean": self.outward(mean), "rows": rows}

    def sparq_traffic(self, request: Request) -> Result:
        """Scalars of one head."""
        names = ("history_rows", "channels", "selected_channels", "rows", "key_layouts")
        with refusals_named():
            return self.selector_sparq.traffic(*(request[name] for name in names))

    # Quest

    def quest_metadata(self, request: Request) -> Result:
        """Extrema of pages."""
        with refusals_named():
            low, high = self.selector_quest.metadata(self.inward(request["k"]), request["page_rows"])
        return {"minimum": self.outward(low), "maximum": self.outward(high)}

    def quest_append(self, request: Request) -> Result:
        """Extrema after some rows more."""
        low, high, k = (self.inward(request[name]) for name in ("minimum", "maximum", "k"))
        with refusals_named():
            low, high, rows = self.selector_quest.append(low, high, request["rows"], request["page_rows"], k)
        return {"minimum": self.outward(low), "maximum": self.outward(high), "rows": rows}

    def quest_score(self, request: Request) -> Result:
        """Bounds of pages."""
        q, kv_head_of = self.inward(request["q"]), request["kv_head_of"]
        with refusals_named():
            if "k" in request:
                history = self.selector_history(request).checked()
                low, high = self.selector_quest.metadata(history.k, request["page_rows"])
            else:
                low, high = self.inward(request["minimum"]), self.inward(request["maximum"])
            return {"bounds": self.outward(self.selector_quest.score(q, low, high, kv_head_of, self.accumulate))}

    def selector_policy(self, request: Request) -> Policy:
        """How pages are chosen."""
        return Policy(**{name: request[name] for name in Policy.__dataclass_fields__ if name in request})

    def quest_select(self, request: Request) -> Result:
        """Pages by given bounds."""
        bounds, kv_head_of = self.inward(request["bounds"]), request["kv_head_of"]
        with refusals_named():
            heads = max(kv_head_of, default=-1) + 1
            found = self.selector_quest.select(self.selector_policy(request), bounds, kv_head_of, heads)
        return {"pages": self.selector_lists(found)}

    def quest_attend(self, request: Request) -> Result:
        """Attention over given pages."""
        pages = self.selector_indices(request["pages"])
        with refusals_named():
            history = self.selector_history(request)
            found = self.selector_quest.attend(history, request["scale"], request["page_rows"], request["scope"], pages)
        return self.selector_output(*found)

    def quest_decode(self, request: Request) -> Result:
        """Bounds, pages and attention over them."""
        with refusals_named():
            history = self.selector_history(request)
            pages, out, lse = self.selector_quest.decode(self.selector_policy(request), history, request["scale"])
        return {"pages": self.selector_lists(pages), **self.selector_output(out, lse)}

    def quest_traffic(self, request: Request) -> Result:
        """Scalars of one head."""
        names = ("history_rows", "channels", "page_rows", "budget_pages")
        return self.selector_quest.traffic(*(request[name] for name in names))

    # InfiniGen

    def infinigen_basis(self, request: Request) -> Result:
        """A basis for sampled queries."""
        with refusals_named():
            basis, values = self.selector_infinigen.basis(
                self.inward(request["q"]), request["kv_head_of"], request["kv_heads"], self.accumulate
            )
        return {"basis": self.outward(basis), "singular_values": self.outward(values)}

    def infinigen_score(self, request: Request) -> Result:
        """Scores in a basis."""
        columns = self.selector_indices(request["columns"]) if "columns" in request else None
        with refusals_named():
            scores, remainder = self.selector_infinigen.score(
                self.selector_history(request), self.inward(request["basis"]), request["tolerance"], columns
            )
        return {"scores": self.outward(scores), "remainder": self.outward(remainder)}

    def infinigen_fold(self, request: Request) -> Result:
        """A folded projection."""
        w, basis = self.inward(request["w"]), self.inward(request["basis"])
        b = self.inward(request["b"]) if "b" in request else None
        settings = (request["basis_of"], request["scale"], request["tolerance"], request["rope"])
        with refusals_named():
            folded, bias = self.selector_infinigen.fold(w, b, basis, *settings)
        return {"w": self.outward(folded), **({} if bias is None else {"b": self.outward(bias)})}

    def infinigen_columns(self, request: Request) -> Result:
        """Columns of the rehearsal."""
        basis = self.inward(request["basis"]) if "basis" in request else None
        with refusals_named():
            columns, evidence = self.selector_infinigen.columns(
                request["rule"],
                self.selector_history(request),
                request["count"],
                basis,
                request.get("tolerance", 0.0),
            )
        return {"columns": self.selector_lists(columns), "evidence": self.outward(evidence)}

    def selector_rehearsal(self, request: Request) -> Any:
        """Speculated scores as an array of the reference's library."""
        x, w, k = (self.inward(request[name]) for name in ("x", "w", "k"))
        b = self.inward(request["b"]) if "b" in request else None
        columns = self.selector_indices(request["columns"])
        return self.selector_infinigen.rehearse(x, w, b, k, columns, request["kv_head_of"], self.accumulate)

    def infinigen_rehearse(self, request: Request) -> Result:
        """Speculated scores."""
        with refusals_named():
            return {"scores": self.outward(self.selector_rehearsal(request))}

    def selector_fetch(self, request: Request, scores: Any, heads: int) -> Fetch:
        """Rows by scores."""
        available = self.selector_indices([request["available"]])[0] if "available" in request else None
        limits = Limits(request["rule"], request["alpha"], request["cap"])
        return self.selector_infinigen.select(limits, scores, request["kv_head_of"], heads, available, self.accumulate)

    def selector_counts(self, fetch: Fetch) -> Result:
        """Counts and positions of a reply."""
        return {
            "counts": fetch.counts,
            "uncapped": fetch.uncapped,
            "count": fetch.count,
            "capped": fetch.capped,
            "positions": self.selector_lists(fetch.positions),
        }

    def infinigen_select(self, request: Request) -> Result:
        """Rows by given scores."""
        with refusals_named():
            fetch = self.selector_fetch(request, self.inward(request["scores"]), request["kv_heads"])
        return {**self.selector_counts(fetch), "margins": self.selector_lists(fetch.margins)}

    def infinigen_attend(self, request: Request) -> Result:
        """Attention over fetched rows."""
        positions = self.selector_indices(request["positions"])
        with refusals_named():
            history = self.selector_history(request)
            return self.selector_output(*self.selector_infinigen.attend(history, request["scale"], positions))

    def infinigen_decode(self, request: Request) -> Result:
        """Rehearsal, selection and attention."""
        with refusals_named():
            history = self.selector_history(request).checked()
            fetch = self.selector_fetch(request, self.selector_rehearsal(request), history.heads)
            out, lse = self.selector_infinigen.gather(history, request["scale"], fetch.positions)
        return {**self.selector_counts(fetch), **self.selector_output(out, lse)}

    def infinigen_pool(self, request: Request) -> Result:
        """What a pool holds."""
        settings = {name: request[name] for name in ("policy", "capacity", "protect_newest")}
        with refusals_named():
            pool = self.selector_pool(**settings, counter_limit=request.get("counter_limit")).checked()
            for step in request["steps"]:
                pool.step(step["use"], step["append"])
        return {"resident": pool.resident, "evicted": pool.evicted}

    def infinigen_layers(self, request: Request) -> Result:
        """Layers that speculate, use speculation, or do neither."""
        return dict(self.selector_infinigen.layers(request["layers"], request["first_issue"]))

    # receipts

    def selector_rules(self, method: str, document: Document) -> Iterable[Rule]:
        """The rules of a receipt in their order."""
        return receipts.RULES[method](document)

    def selector_check(self, method: str, request: Request) -> Result:
        """Accept a receipt or reject it."""
        with refusals_named():
            for holds, reason in self.selector_rules(method, request["document"]):
                if not holds:
                    raise Refusal(reason)
        return {}

    def sparq_check(self, request: Request) -> Result:
        """A receipt of SparQ."""
        return self.selector_check("sparq", request)

    def quest_check(self, request: Request) -> Result:
        """A receipt of Quest."""
        return self.selector_check("quest", request)

    def infinigen_check(self, request: Request) -> Result:
        """A prefetch receipt of InfiniGen."""
        return self.selector_check("infinigen", request)
