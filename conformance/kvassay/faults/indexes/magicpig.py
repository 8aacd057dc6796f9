"""Faults of MagicPIG's ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from kvassay_reference.attention import State
from kvassay_reference.indexes import magicpig, rows
from kvassay_reference.indexes.magicpig import Estimate, Tables

from ..base import Fault
from .base import Request, Result, case

# --- buckets and samples -------------------------------------------------------------------------------------------


class OnThePlaneIsPositive(Fault):
    """A row on a plane counts as on its positive side."""

    requirement = "IDX-047"
    killed_by = case("magicpig/bits")

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        bits = projections.shape[1]
        other = magicpig.buckets(-x, projections)
        return [[(1 << bits) - 1 - code for code in row] for row in other]


class BitsBackwards(Fault):
    """The first plane has the highest bit."""

    requirement = "IDX-047"
    killed_by = case("magicpig/bits", "magicpig/buckets-two-tables", "magicpig/buckets-many-bits")

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        return super().sampled_buckets(x, projections[:, ::-1])


class BucketsInHalfPrecision(Fault):
    """Buckets pass through a float16: MagicPIG at ac9aa36 packs bits with half-precision powers of two."""

    requirement = "IDX-047"
    killed_by = case("magicpig/buckets-many-bits")

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        return [[int(np.float16(code)) for code in row] for row in super().sampled_buckets(x, projections)]


class FirstTableForAll(Fault):
    """Every table hashes with the first one's planes."""

    requirement = "IDX-047"
    killed_by = case("magicpig/buckets-two-tables", "magicpig/buckets-one-bit", "magicpig/buckets-of-a-longer-row")

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        return super().sampled_buckets(x, np.broadcast_to(projections[:1], projections.shape))


class ShiftedPlanes(Fault):
    """Planes do not pass through the origin, so that longer rows fall elsewhere."""

    requirement = "IDX-047"
    killed_by = case("magicpig/buckets-of-a-longer-row")

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        if x.shape[1] != projections.shape[2]:
            return super().sampled_buckets(x, projections)
        wide = np.concatenate([x, np.ones_like(x[:, :1])], axis=1)
        return super().sampled_buckets(wide, np.concatenate([projections, projections[..., :1] * 0 - 4], axis=2))


class PadsRows(Fault):
    """Rows of another width are padded."""

    requirement = "IDX-047"
    killed_by = case("magicpig/buckets-of-a-longer-row")

    def sampled_buckets(self, x: Any, projections: Any) -> list[list[int]]:
        more = projections.shape[2] - x.shape[1]
        return super().sampled_buckets(np.pad(x, ((0, 0), (0, max(more, 0)))), projections)


class OneTableIsEnough(Fault):
    """A row is sampled when any table matches."""

    requirement = "IDX-048"
    killed_by = case("magicpig/published-sample", "magicpig/one-or-two-tables")

    def magicpig_search(self, request: Request) -> Result:
        return super().magicpig_search({**request, "min_tables": 1})


class MoreThanTheMinimum(Fault):
    """The required number of tables has to be exceeded."""

    requirement = "IDX-048"
    killed_by = case("magicpig/published-sample", "magicpig/one-or-two-tables")

    def magicpig_search(self, request: Request) -> Result:
        return super().magicpig_search({**request, "min_tables": request["min_tables"] + 1})


class TablesByBits(Fault):
    """Tables match when some bit of the bucket does."""

    requirement = "IDX-048"
    killed_by = case("magicpig/published-sample", "magicpig/one-or-two-tables")

    def sampled_matches(self, keys: Any, query: Any) -> Any:
        return np.sum((keys ^ query[:, None]) != 3, axis=0)


class TablesOfHeadZero(Fault):
    """All query heads search the first K/V head's tables."""

    requirement = "IDX-048"
    killed_by = case("magicpig/samples-by-head")

    def magicpig_search(self, request: Request) -> Result:
        self.sampled_check_codes(request)
        return super().magicpig_search({**request, "kv_head_of": [0] * len(request["kv_head_of"])})


class BucketsUnchecked(Fault):
    """Buckets beyond the table wrap around."""

    requirement = "IDX-048"
    killed_by = case("magicpig/samples-by-head")

    def sampled_check_codes(self, request: Request) -> None:
        legal = {**request, "bits": 30}
        super().sampled_check_codes(legal)


# --- probability ---------------------------------------------------------------------------------------------------


class Included(Fault):
    """Probabilities by another formula."""

    requirement = "IDX-049"

    def formula(self, cosines: Any, rule: Tables) -> Any:
        """The probability."""
        raise NotImplementedError

    def sampled_inclusion(self, cosines: Any, rule: Tables) -> tuple[Any, Any]:
        with np.errstate(all="ignore"):
            u = np.asarray(self.formula(cosines, rule), np.float64)
            return u, np.log(u)

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        exact = super().sampled_head(q, k, v, static, sampled, **more)
        keys = np.asarray(k)[list(sampled)].astype(np.float64) - more["middle"]
        u, log_u = self.sampled_inclusion(magicpig.cosines_of(q, keys), more["rule"])
        return (
            reweighed(q, k, v, static, sampled, more, log_u)
            if len(sampled)
            else Estimate(exact.state, [float(x) for x in u])
        )


def reweighed(q: Any, k: Any, v: Any, static: Any, sampled: Any, more: Any, log_u: Any) -> Estimate:
    """The estimate with other logarithms of the probabilities."""
    ids = [*static, *sampled]
    keys = np.asarray(k)[ids].astype(np.float64) - more["middle"]
    logits = keys.astype(np.float32) @ (q * np.float32(more["scale"]))
    logits = logits - np.concatenate([np.zeros(len(static)), log_u]).astype(np.float32)
    return Estimate(rows.weigh(logits, np.asarray(v)[ids]), [float(x) for x in np.exp(log_u)])


class ClosedForm(Included):
    """One minus the chance of none and of one, in float64."""

    killed_by = case("magicpig/probability-in-the-tail", "magicpig/probability-10-150")

    def formula(self, cosines: Any, rule: Tables) -> Any:
        r = magicpig.collision(cosines) ** rule.bits
        rest = (1 - r) ** rule.tables
        if rule.least == 2:
            rest = rest + rule.tables * r * (1 - r) ** (rule.tables - 1)
        return 1 - rest


class ClosedFormInSingle(Included):
    """The same in float32: MagicPIG at ac9aa36 is off by a third at cosine -0.5."""

    killed_by = case("magicpig/probability-in-the-tail", "magicpig/probability-8-75", "magicpig/no-epsilon")

    def formula(self, cosines: Any, rule: Tables) -> Any:
        p = np.float32(1) - np.arccos(np.clip(cosines, -1, 1)).astype(np.float32) / np.float32(math.pi)
        r = p**rule.bits
        rest = (1 - r) ** np.float32(rule.tables)
        if rule.least == 2:
            rest = rest + np.float32(rule.tables) * r * (1 - r) ** np.float32(rule.tables - 1)
        return np.float32(1) - rest


class CosineNotClamped(Included):
    """A cosine that rounding took beyond one gives NaN: MagicPIG at ac9aa36."""

    killed_by = case("magicpig/cosine-beyond-one")

    def formula(self, cosines: Any, rule: Tables) -> Any:
        u = magicpig.inclusion(cosines, rule)[0]
        return np.where(np.abs(cosines) > 1, np.nan, u)


class ExactlyTwo(Included):
    """The chance of exactly two matches."""

    killed_by = case("magicpig/probability-1-2", "magicpig/probability-3-6", "magicpig/published-probability-3-6")

    def formula(self, cosines: Any, rule: Tables) -> Any:
        r = magicpig.collision(cosines) ** (rule.bits if rule.bits > 1 else 2)
        return math.comb(rule.tables, rule.least) * r**rule.least * (1 - r) ** max(rule.tables - rule.least, 0)


class OneMatchAlways(Included):
    """The chance of one match and more, whatever the rule."""

    killed_by = case(
        "magicpig/probability-10-150",
        "magicpig/probability-8-75",
        "magicpig/probability-1-1",
        "magicpig/published-probability-10-150",
        "magicpig/published-probability-8-75",
        "magicpig/published-probability-1-2",
    )

    def formula(self, cosines: Any, rule: Tables) -> Any:
        return magicpig.inclusion(cosines, rule._replace(least=1))[0]


class AngleByCosine(Included):
    """A bit matches with probability (1 + c) / 2."""

    killed_by = case("magicpig/probability-3-6", "magicpig/probability-12-60", "magicpig/more-tables-more-chance")

    def formula(self, cosines: Any, rule: Tables) -> Any:
        p = (1 + np.clip(cosines, -1, 1)) / 2
        return magicpig.inclusion(np.cos(math.pi * (1 - p)), rule)[0]


class EndsAreFloored(Included):
    """A probability of zero is raised to the smallest number there is."""

    killed_by = case("magicpig/probability-at-the-ends")

    def formula(self, cosines: Any, rule: Tables) -> Any:
        return np.maximum(magicpig.inclusion(cosines, rule)[0], 1e-30)


# --- the estimator -------------------------------------------------------------------------------------------------


class NoCorrection(Fault):
    """Sampled rows are weighed by the softmax."""

    requirement = "IDX-050"
    killed_by = case(
        "magicpig/estimate-one-head", "magicpig/estimate-grouped", "magicpig/one-sample-with-a-large-error"
    )

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        exact = super().sampled_head(q, k, v, static, sampled, **more)
        return Estimate(reweighed(q, k, v, static, sampled, more, np.zeros(len(sampled))).state, exact.chances)


class CorrectionTheOtherWay(Fault):
    """The logarithm is added."""

    requirement = "IDX-050"
    killed_by = case("magicpig/estimate-one-head", "magicpig/estimate-crossed")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        exact = super().sampled_head(q, k, v, static, sampled, **more)
        return Estimate(
            reweighed(q, k, v, static, sampled, more, -np.log(np.asarray(exact.chances))).state, exact.chances
        )


class StaticRowsCorrected(Fault):
    """Static rows are weighed by a probability as well."""

    requirement = "IDX-050"
    killed_by = case("magicpig/static-rows-are-plain-attention", "magicpig/estimate-grouped")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        every = super().sampled_head(q, k, v, [], [*static, *sampled], **more)
        return Estimate(every.state, every.chances[len(static) :])


class AlwaysEpsilon(Fault):
    """1e-4 is added to every probability, as in the published code."""

    requirement = "IDX-050"
    killed_by = case("magicpig/no-epsilon", "magicpig/estimate-one-head")

    def magicpig_estimate(self, request: Request) -> Result:
        return super().magicpig_estimate({**request, "epsilon": max(request["epsilon"], 1e-4)})


class NeverEpsilon(Fault):
    """Nothing is added, also under the variant."""

    requirement = "IDX-050"
    killed_by = case("magicpig/epsilon-of-the-code")

    def magicpig_estimate(self, request: Request) -> Result:
        return super().magicpig_estimate({**request, "epsilon": 0.0})


class RemembersTheRule(Fault):
    """Probabilities are those of the rule that the first estimate came with."""

    requirement = "IDX-055"
    killed_by = case("magicpig/estimate-one-head-other-rules", "magicpig/estimate-grouped-other-rules")

    def open(self) -> None:
        super().open()
        self.rule: Tables | None = None

    def sampled_rule(self, request: Request) -> Tables:
        self.rule = self.rule or super().sampled_rule(request)
        return self.rule


class TwoTablesAssumed(Fault):
    """The required number of tables is a constant of the build."""

    requirement = "IDX-055"
    killed_by = case("magicpig/estimate-crossed-other-rules")

    def sampled_rule(self, request: Request) -> Tables:
        return super().sampled_rule(request)._replace(least=2)


class SampleWithRepeats(Fault):
    """Repeated and static rows are dropped from the sample in silence."""

    requirement = "IDX-050"
    killed_by = case("magicpig/sample-is-a-set")

    def magicpig_estimate(self, request: Request) -> Result:
        static = list(dict.fromkeys(request["static"]))
        drawn = [[i for i in dict.fromkeys(ids) if i not in static] for ids in request["sampled"]]
        return super().magicpig_estimate({**request, "static": static, "sampled": drawn})


class MeanOfAllKeys(Fault):
    """The mean is over static keys, too."""

    requirement = "IDX-051"
    killed_by = case("magicpig/mean-of-the-offloaded-keys", "magicpig/estimate-one-head")

    def sampled_mean(self, request: Request, k: Any, one: int) -> Any:
        if "key_mean" in request:
            return super().sampled_mean(request, k, one)
        return magicpig.mean_key(k[:, one, :], range(k.shape[0]))


class MeanOfTheSample(Fault):
    """The mean is over the sampled rows."""

    requirement = "IDX-051"
    killed_by = case("magicpig/mean-of-the-offloaded-keys", "magicpig/estimate-crossed")

    def sampled_mean(self, request: Request, k: Any, one: int) -> Any:
        drawn = sorted({i for ids in request["sampled"] for i in ids})
        return (
            super().sampled_mean(request, k, one) if "key_mean" in request else magicpig.mean_key(k[:, one, :], drawn)
        )


class OwnMeanOnly(Fault):
    """A mean that comes with the request is not used."""

    requirement = "IDX-051"
    killed_by = case("magicpig/stale-mean", "magicpig/row-at-the-mean")

    def sampled_mean(self, request: Request, k: Any, one: int) -> Any:
        return magicpig.mean_key(k[:, one, :], magicpig.offloaded(k.shape[0], request["static"]))


class StaticKeysKeepTheMean(Fault):
    """The mean is subtracted on the host alone."""

    requirement = "IDX-051"
    killed_by = case("magicpig/estimate-one-head", "magicpig/estimate-grouped", "magicpig/mean-of-the-offloaded-keys")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        whole = np.array(k, np.float64)
        whole[list(static)] += more["middle"]
        return super().sampled_head(q, whole, v, static, sampled, **more)


class CosineOfRawKeys(Fault):
    """Probabilities are those of keys that are not centred."""

    requirement = "IDX-051"
    killed_by = case("magicpig/estimate-one-head", "magicpig/stale-mean")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        super().sampled_head(q, k, v, static, sampled, **more)
        u, log_u = magicpig.inclusion(magicpig.cosines_of(q, np.asarray(k)[list(sampled)]), more["rule"])
        return Estimate(reweighed(q, k, v, static, sampled, more, log_u).state, [float(x) for x in u])


class NoDirectionIsNaN(Fault):
    """A key without direction has a cosine of 0/0."""

    requirement = "IDX-051"
    killed_by = case("magicpig/row-at-the-mean")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        exact = super().sampled_head(q, k, v, static, sampled, **more)
        at = [bool(np.all(np.asarray(k)[i] == more["middle"])) for i in sampled]
        if not any(at):
            return exact
        nothing = State(*(np.full_like(part, np.nan) for part in exact.state))
        return Estimate(nothing, [math.nan if zero else u for zero, u in zip(at, exact.chances, strict=True)])


class ZeroIsDropped(Fault):
    """A sampled row of probability zero is left out in silence."""

    requirement = "IDX-052"
    killed_by = case("magicpig/zero-probability")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        keys = np.asarray(k)[list(sampled)].astype(np.float64) - more["middle"]
        u, _ = magicpig.inclusion(magicpig.cosines_of(q, keys), more["rule"])
        kept = [i for i, chance in zip(sampled, u, strict=True) if chance + more["epsilon"] > 0]
        return super().sampled_head(q, k, v, static, kept, **more)


class EmptySampleIsNaN(Fault):
    """Over no sampled row the estimate is 0/0."""

    requirement = "IDX-053"
    killed_by = case("magicpig/empty-sample")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        exact = super().sampled_head(q, k, v, static, sampled, **more)
        if sampled or static:
            return exact
        return Estimate(State(exact.state.m, exact.state.l, np.full_like(exact.state.u, np.nan)), [])


class EmptySampleHasMass(Fault):
    """An empty sample returns a log-sum-exp of zero, as a fresh buffer does."""

    requirement = "IDX-053"
    killed_by = case("magicpig/empty-sample")

    def sampled_head(self, q: Any, k: Any, v: Any, static: Any, sampled: Any, **more: Any) -> Estimate:
        exact = super().sampled_head(q, k, v, static, sampled, **more)
        state = exact.state
        return Estimate(
            State(np.where(state.l > 0, state.m, 0), np.where(state.l > 0, state.l, 1), state.u), exact.chances
        )


# --- enumeration ---------------------------------------------------------------------------------------------------


class Enumerates(Fault):
    """An enumeration with a defect."""

    requirement = "IDX-054"

    def changed(self, found: Result, request: Request) -> Result:
        """What replaces some members."""
        return {}

    def magicpig_enumerate(self, request: Request) -> Result:
        found = super().magicpig_enumerate(request)
        return {**found, **self.changed(found, request)}


class UnbiasedByDecree(Enumerates):
    """The estimator is unbiased, so its mean is dense attention."""

    killed_by = case("magicpig/biased-at-finite-samples", "magicpig/enumerate-two-bits", "magicpig/enumerate-one-match")

    def changed(self, found: Result, request: Request) -> Result:
        return {"expected": found["dense"], "bias": [0.0] * len(found["dense"])}


class IndependentRows(Enumerates):
    """Rows are drawn independently of each other."""

    killed_by = case("magicpig/outcomes-and-their-probabilities", "magicpig/bias-vanishes-with-tables")

    def changed(self, found: Result, request: Request) -> Result:
        cosines = magicpig.cosines_of(request["q"], request["k"])
        u, _ = magicpig.inclusion(cosines, self.sampled_rule(request))
        outcomes = [
            {**one, "probability": float(np.prod([x if i in one["ids"] else 1 - x for i, x in enumerate(u)]))}
            for one in found["outcomes"]
        ]
        return {"outcomes": outcomes, "nonempty": float(1 - np.prod(1 - u))}


class EmptySamplesCount(Enumerates):
    """The empty sample enters the mean with an output of zero."""

    killed_by = case("magicpig/biased-at-finite-samples", "magicpig/enumerate-one-key")

    def changed(self, found: Result, request: Request) -> Result:
        mean = [x * found["nonempty"] for x in found["expected"]]
        return {"expected": mean, "bias": [a - b for a, b in zip(mean, found["dense"], strict=True)]}


class MostLikelySample(Enumerates):
    """The mean over all samples is that of the likeliest one."""

    killed_by = case("magicpig/enumerate-two-bits", "magicpig/enumerate-never-two")

    def changed(self, found: Result, request: Request) -> Result:
        return {"expected": found["dense"], "nonempty": max(one["probability"] for one in found["outcomes"])}


class AnyChannels(Enumerates):
    """Channels beyond the second are cut, and rows of zeros are taken along."""

    killed_by = case("magicpig/enumerate-rejects")

    def magicpig_enumerate(self, request: Request) -> Result:
        k = np.asarray(request["k"])[:, :2]
        keep = np.any(k != 0, axis=1)
        q = np.asarray(request["q"])[:2]
        return super().magicpig_enumerate({**request, "q": q, "k": k[keep], "v": np.asarray(request["v"])[keep]})


# --- bytes ---------------------------------------------------------------------------------------------------------


class GathersToTheDevice(Fault):
    """Sampled rows are counted as moved."""

    requirement = "IDX-056"
    killed_by = case("magicpig/ledger")

    def magicpig_ledger(self, request: Request) -> Result:
        reply = super().magicpig_ledger(request)
        return {**reply, "gather_bytes": reply["payload_bytes"] // 50}


class BucketsByUse(Fault):
    """Only buckets that hold a row are counted."""

    requirement = "IDX-056"
    killed_by = case("magicpig/ledger-bits-and-tables")

    def magicpig_ledger(self, request: Request) -> Result:
        reply = super().magicpig_ledger(request)
        most = request["tables"] * min(1 << request["bits"], request["rows"]) * request["range_bytes"]
        return {**reply, "bucket_bytes": most}


class TablesOfOneHead(Fault):
    """The tables of one K/V head stand for all."""

    requirement = "IDX-056"
    killed_by = case("magicpig/ledger", "magicpig/ledger-bits-and-tables")

    def magicpig_ledger(self, request: Request) -> Result:
        reply = super().magicpig_ledger(request)
        return {**reply, "index_bytes": reply["bucket_bytes"] + reply["entry_bytes"]}


class OutputsWithoutMass(Fault):
    """What comes back is the output alone, which cannot be merged."""

    requirement = "IDX-056"
    killed_by = case("magicpig/ledger", "magicpig/ledger-bits-and-tables")

    def magicpig_ledger(self, request: Request) -> Result:
        reply = super().magicpig_ledger(request)
        return {
            **reply,
            "inward_bytes": request["query_heads"] * request["value_channels"] * request["state_item_bytes"],
        }
