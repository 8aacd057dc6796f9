"""Faults of output errors: conditional outputs, the mixture, bounds, denominators, maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from kvassay_reference.quality import losses
from kvassay_reference.quality.losses import Errors, Masses, Outputs, Propagated
from kvassay_reference.quality.runs import Run
from kvassay_reference.selectors.rows import softmax

from ..base import Fault, found
from .base import Array, Request, case


class NotRenormalised(Fault):
    """The retained output is a dense sum over part of the rows."""

    requirement = "QLT-014"
    killed_by = case("outputs/renormalised", "error/rows", "error/pages", "large/errors-of-pages")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        return made._replace(retained=made.retained * self.qlt_masses(run, head, support).retained)


class WeightsOfThirteenBits(Fault):
    """Outputs are made with weights of thirteen good bits, as an approximate exponential has them."""

    requirement = "QLT-014"
    killed_by = case("error/rows", "error/pages", "outputs/values-of-the-head-that-is-read")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        xp = array_namespace(run.scores)
        signs = xp.asarray([1.0 - 2.0 * (row % 2) for row in run.legal], dtype=run.scores.dtype)
        return super().qlt_outputs(replace(run, scores=run.scores + signs[None, :] * 2.0**-12), head, support)


class OutputsUnshifted(Fault):
    """Outputs are made with exponentials that may overflow or vanish."""

    requirement = "QLT-020"
    killed_by = case("shift/errors-with-scores-moved-up", "shift/errors-with-scores-moved-down")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        xp = array_namespace(made.dense)
        values = np.asarray(self.outward(run.values), np.float32)[:, run.said["kv_head_of"][head], :]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            weights = np.exp(np.asarray(self.outward(run.scores[head, :]), np.float32))
            dense = (weights[:, None] * values).sum(axis=0) / weights.sum()
        return made._replace(dense=xp.asarray(dense, dtype=made.dense.dtype))


class DividedByTheMass(Fault):
    """Conditional outputs are dense sums over a mass, which may be zero."""

    requirement = "QLT-014"
    killed_by = case("outputs/underflow")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        xp = array_namespace(made.dense)
        mass = self.qlt_masses(run, head, support)
        nothing = xp.zeros_like(made.dense)
        omitted = made.omitted if made.omitted is None or mass.omitted > 0 else nothing
        return made._replace(retained=made.retained if mass.retained > 0 else nothing, omitted=omitted)


class ValuesOfTheFirstHead(Fault):
    """Outputs are made of K/V head 0 for all query heads."""

    requirement = "QLT-013"
    killed_by = case("outputs/values-of-the-head-that-is-read", "denominator/by-head", "real/errors-of-rows")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        said = {**run.said, "kv_head_of": [0] * len(run.place)}
        return super().qlt_outputs(replace(run, said=said), head, support)


class ScoresOfTheFirstHead(Fault):
    """Outputs are made by the scores of query head 0."""

    requirement = "QLT-013"
    killed_by = case("outputs/values-of-the-head-that-is-read", "real/errors-of-rows")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        xp = array_namespace(run.scores)
        return super().qlt_outputs(
            replace(run, scores=xp.broadcast_to(run.scores[:1, :], run.scores.shape)), head, support
        )


class EmptySupportIsZero(Fault):
    """Attention over nothing has the output zero."""

    requirement = "QLT-014"
    killed_by = case("outputs/nothing-selected", "outputs/one-list-empty", "outputs/page-of-hidden-rows")

    def qlt_check_supports(self, supports: Sequence[Sequence[int]]) -> None:
        return

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        if support:
            return super().qlt_outputs(run, head, support)
        made = super().qlt_outputs(run, head, run.legal[:1])
        return made._replace(retained=made.dense - made.dense, omitted=made.dense)


class OneEmptyListIsEnough(Fault):
    """An empty support is rejected only where every list is empty."""

    requirement = "QLT-014"
    killed_by = case("outputs/one-list-empty")

    def qlt_check_supports(self, supports: Sequence[Sequence[int]]) -> None:
        super().qlt_check_supports([[0]] if any(supports) else supports)

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        return super().qlt_outputs(run, head, support or run.legal[:1])


class OmittedOutputOfNothing(Fault):
    """Where nothing was omitted, the omitted output is zero and not absent."""

    requirement = "QLT-015"
    killed_by = case("error/dense", "error/all-rows-of-one-list")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        return made if made.omitted is not None else made._replace(omitted=made.dense - made.dense)


class OmittedByTheLargestList(Fault):
    """Whether something was omitted is asked once for all heads."""

    requirement = "QLT-015"
    killed_by = case("error/all-rows-of-one-list")
    qlt_longest = 0

    def qlt_check_supports(self, supports: Sequence[Sequence[int]]) -> None:
        super().qlt_check_supports(supports)
        self.qlt_longest = max(map(len, supports))

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        return made._replace(omitted=None) if self.qlt_longest == len(run.legal) else made


class OmittedByTheMass(Fault):
    """There is an omitted output where the omitted mass is above an epsilon."""

    requirement = "QLT-015"
    killed_by = case("mixture/small-rest", "outputs/underflow")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        return made if self.qlt_masses(run, head, support).omitted > 1e-6 else made._replace(omitted=None)


class ErrorIsADifference(Fault):
    """The error is the difference of two outputs in float32."""

    requirement = "QLT-016"
    killed_by = case("mixture/small-rest", "real/errors-with-a-small-rest")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        absolute = losses.length(made.retained - made.dense)
        return good._replace(
            vector=made.retained - made.dense,
            absolute=absolute,
            relative=losses.relative(absolute, good.denominator, floor),
        )


class DistanceInHalf(Fault):
    """The distance of the conditional outputs is taken in half precision."""

    requirement = "QLT-016"
    killed_by = case("error/rows", "error/pages")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        return good._replace(absolute=good.absolute * (1 + 2.0**-12))


class OmittedMassForgotten(Fault):
    """The error is the distance of the conditional outputs."""

    requirement = "QLT-016"
    killed_by = case("error/rows", "error/pages", "error/clusters", "mixture/many-low-rows-or-one-high")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        full = super().qlt_errors(made, mass._replace(omitted=1.0 if mass.omitted else 0.0), floor)
        right = super().qlt_errors(made, mass, floor)
        return right._replace(vector=full.vector, absolute=full.absolute, relative=full.relative)


class RetainedMassInTheError(Fault):
    """The factor of the error is the retained mass."""

    requirement = "QLT-016"
    killed_by = case("error/rows", "error/pages", "mixture/many-low-rows-or-one-high")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        if made.omitted is None:
            return good
        other = super().qlt_errors(made, Masses(mass.omitted, mass.retained), floor)
        return good._replace(vector=other.vector, absolute=other.absolute, relative=other.relative)


class LargestChannelError(Fault):
    """The error is its largest channel."""

    requirement = "QLT-016"
    killed_by = case("error/rows", "real/errors-of-rows")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        xp = array_namespace(good.vector)
        absolute = float(xp.max(xp.abs(good.vector)))
        return good._replace(absolute=absolute, relative=losses.relative(absolute, good.denominator, floor))


class FastSquareRoot(Fault):
    """The largest value's length comes from an approximate square root with seventeen good bits."""

    requirement = "QLT-017"
    killed_by = case("error/rows", "bounds/largest-value-is-omitted")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        return made._replace(largest=made.largest * (1 - 2.0**-17))


class BoundWithoutTwo(Fault):
    """The bound is the omitted mass times the largest value."""

    requirement = "QLT-017"
    killed_by = case("bounds/reached", "error/rows")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        return good._replace(bound=good.bound / 2)


class LargestRetainedValue(Fault):
    """The largest value is sought among the rows that were read."""

    requirement = "QLT-017"
    killed_by = case("bounds/largest-value-is-omitted")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        values = np.asarray(self.outward(run.values))[run.indices_of(support), run.said["kv_head_of"][head], :]
        return made._replace(largest=float(np.sqrt((values * values).sum(axis=-1)).max()))


class LargestChannelOfAValue(Fault):
    """The largest value is the one with the largest channel."""

    requirement = "QLT-017"
    killed_by = case("bounds/length-and-not-largest-channel", "error/rows")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        values = np.asarray(self.outward(run.values))[:, run.said["kv_head_of"][head], :]
        return made._replace(largest=float(np.abs(values).max()))


class HiddenValuesBound(Fault):
    """Values of hidden rows are in the bound."""

    requirement = "QLT-017"
    killed_by = case("outputs/hidden-values")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        values = np.asarray(self.outward(run.said["v"]), np.float64)[:, run.said["kv_head_of"][head], :]
        return made._replace(largest=float(np.sqrt(np.nanmax((values * values).sum(axis=-1)))))


class TriangleOfTheDense(Fault):
    """The triangle bound takes the dense output for the omitted one."""

    requirement = "QLT-017"
    killed_by = case("error/rows", "error/pages", "bounds/reached")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        return good._replace(triangle=mass.omitted * (losses.length(made.retained) + good.denominator))


class RelativeToTheRetained(Fault):
    """The relative error is over the length of the retained output."""

    requirement = "QLT-018"
    killed_by = case("error/rows", "error/pages", "error/clusters")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        if good.relative is None:
            return good
        return good._replace(relative=good.absolute / max(1e-30, losses.length(made.retained)))


class FastReciprocal(Fault):
    """The relative error comes from an approximate reciprocal."""

    requirement = "QLT-018"
    killed_by = case("error/rows", "error/pages")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        return good if good.relative is None else good._replace(relative=good.relative * (1 - 2.0**-11))


class SmallDenominatorAdded(Fault):
    """A small number is added to the denominator, so that there always is one."""

    requirement = "QLT-018"
    killed_by = case("denominator/zero", "denominator/at-the-floor")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        return good._replace(relative=good.absolute / (good.denominator + 1e-8))


class FloorIncluded(Fault):
    """A dense output of exactly the floor's length is a denominator."""

    requirement = "QLT-018"
    killed_by = case("denominator/at-the-floor", "denominator/zero")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        if good.denominator == floor:
            return good._replace(relative=good.absolute / floor if floor else 0.0)
        return good


class FloorForgotten(Fault):
    """Only zero is no denominator."""

    requirement = "QLT-018"
    killed_by = case("denominator/at-the-floor", "denominator/floor-of-a-larger-output")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        return super().qlt_errors(made, mass, 0.0)


class FloorOfTheError(Fault):
    """The floor is compared with the error."""

    requirement = "QLT-018"
    killed_by = case("denominator/floor-of-a-larger-output", "denominator/at-the-floor")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        usable = good.absolute > floor and good.denominator > 0
        return good._replace(relative=good.absolute / good.denominator if usable else None)


class DenominatorClamped(Fault):
    """The denominator is told as the floor where it is below it."""

    requirement = "QLT-018"
    killed_by = case("denominator/zero", "denominator/at-the-floor")

    def qlt_errors(self, made: Outputs, mass: Masses, floor: float) -> Errors:
        good = super().qlt_errors(made, mass, floor)
        return good._replace(denominator=max(good.denominator, floor + 1e-3))


class MapTransposed(Fault):
    """The map's columns are taken for its rows."""

    requirement = "QLT-019"
    killed_by = case("error/rows", "map/three-channels")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        square = matrix.shape[0] == matrix.shape[1]
        return super().qlt_propagate(matrix.T if square else matrix, found)


class NormInFifteenBits(Fault):
    """Norms of the map come from an approximate square root."""

    requirement = "QLT-019"
    killed_by = case("error/rows", "map/three-channels", "map/rotation")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        made = super().qlt_propagate(matrix, found)
        return made._replace(frobenius_norm=made.frobenius_norm * (1 + 2.0**-15))


class MapNotApplied(Fault):
    """The error behind the map is the one before it."""

    requirement = "QLT-019"
    killed_by = case("error/rows", "map/zero", "map/projection")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        return super().qlt_propagate(matrix, found)._replace(error=found.absolute)


class FrobeniusOfTheOperator(Fault):
    """The Frobenius norm is the largest singular value."""

    requirement = "QLT-019"
    killed_by = case("error/rows", "map/rotation", "map/three-channels")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        made = super().qlt_propagate(matrix, found)
        norm = made.operator_norm
        return made._replace(frobenius_norm=norm, frobenius_bound=norm * found.absolute, bound=norm * found.bound)


class OperatorByRows(Fault):
    """The operator norm is the longest row, which is no bound."""

    requirement = "QLT-019"
    killed_by = case("error/rows", "map/dependent-columns", "map/more-rows-than-columns")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        made = super().qlt_propagate(matrix, found)
        norm = float(np.sqrt((np.asarray(self.outward(matrix)) ** 2).sum(axis=-1)).max())
        return made._replace(operator_norm=norm, operator_bound=norm * found.absolute)


class SingularValueOfThePower(Fault):
    """The operator norm is found by two steps of the power method, which has not converged."""

    requirement = "QLT-019"
    killed_by = case("map/more-rows-than-columns", "map/three-channels")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        made = super().qlt_propagate(matrix, found)
        table = np.asarray(self.outward(matrix), np.float64)
        vector = np.ones(table.shape[1])
        for _ in range(2):
            vector = table.T @ (table @ vector)
            size = np.linalg.norm(vector)
            vector = vector / size if size else vector
        norm = float(np.linalg.norm(table @ vector))
        return made._replace(operator_norm=norm, operator_bound=norm * found.absolute)


class BoundNotPropagated(Fault):
    """The bound behind the map is the error's and not the bound's."""

    requirement = "QLT-019"
    killed_by = case("error/rows", "map/rotation")

    def qlt_propagate(self, matrix: Any, found: Errors) -> Propagated:
        made = super().qlt_propagate(matrix, found)
        return made._replace(bound=made.frobenius_bound)


class MapCut(Fault):
    """A map of other columns is cut or filled up."""

    requirement = "QLT-019"
    killed_by = case("map/wrong-columns", "map/wrong-rows-for-columns")

    def qlt_matrix(self, request: Request, run: Run) -> Array:
        if "map" not in request or request["map"]["matrix"].ndim != 2:
            return super().qlt_matrix(request, run)
        matrix, width = request["map"]["matrix"], request["run"]["v"].shape[2]
        fitted = np.zeros((matrix.shape[0], width), matrix.dtype)
        shared = min(width, matrix.shape[1])
        fitted[:, :shared] = matrix[:, :shared]
        return super().qlt_matrix({**request, "map": {**request["map"], "matrix": fitted}}, run)


class SumInHalf(Fault):
    """Outputs are summed one row after the other in half precision, so that order matters."""

    requirement = "QLT-020"
    killed_by = case("order/of-rows", "error/rows", "real/errors-of-rows")

    def qlt_outputs(self, run: Run, head: int, support: Sequence[int]) -> Outputs:
        made = super().qlt_outputs(run, head, support)
        xp = array_namespace(made.dense)
        weights = np.asarray(self.outward(softmax(run.scores[head, :])), np.float16)
        values = np.asarray(self.outward(run.values), np.float16)[:, run.said["kv_head_of"][head], :]
        total = np.zeros(values.shape[1], np.float16)
        for weight, value in zip(weights, values, strict=True):
            total = (total + weight * value).astype(np.float16)
        return made._replace(dense=xp.asarray(total, dtype=made.dense.dtype))


FAULTS = found(globals())
