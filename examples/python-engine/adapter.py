"""A complete engine of forty lines and its adapter: attention in NumPy, with states of output and natural LSE.

kvassay run --adapter adapter:Adapter --contract attention      # from this folder
"""

import kvassay
import numpy as np


def attend(q, k, v, scale, kv_head_of, legal):
    """The engine: output and log-sum-exp of every query head over the legal rows, in float64."""
    k, v = (np.asarray(rows, dtype=np.float64)[legal][:, kv_head_of] for rows in (k, v))
    scores = scale * np.einsum("hd,thd->ht", np.asarray(q, dtype=np.float64), k)
    top = scores.max(axis=1, initial=-np.inf, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    mass = weights.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.einsum("ht,thd->hd", weights, v) / mass[:, None]
        return np.where(mass[:, None] > 0, out, 0), np.where(mass > 0, top[:, 0] + np.log(mass), -np.inf)


def merge(outs, lses):
    """The engine: the mixture of outputs by their share of the softmax mass, in float64."""
    lses = np.asarray(lses, dtype=np.float64)
    lse = np.logaddexp.reduce(lses)
    share = np.exp(lses - np.where(np.isinf(lse), 0, lse))
    return np.einsum("ph,phd->hd", share, outs), lse


class Adapter(kvassay.EngineAdapter):
    """Translates requests into calls, and results into states; nothing else."""

    engine = kvassay.EngineInfo("python-example", "1")
    profiles = frozenset({"dense", "partial", "merge"})
    states = ("o-lse-v1/e",)

    def attention_dense(self, request):
        """The output over all legal rows; the engine has none to give where there are none."""
        legal = self._legal(request)
        if not legal.any():
            raise kvassay.Rejected("NO_LEGAL_ROWS")
        return {"out": self._attend(request, legal)[0].astype(np.float32)}

    def attention_partial(self, request):
        """The state of one partition."""
        return self._state(*self._attend(request, self._legal(request)))

    def attention_merge(self, request):
        """The state of the union."""
        states = request["states"]
        return self._state(*merge([state["o"] for state in states], np.stack([state["lse"] for state in states])))

    def _attend(self, request, legal):
        return attend(*(request[name] for name in ("q", "k", "v", "scale", "kv_head_of")), legal)

    def _legal(self, request):
        first, query, mask = request.get("k_first_position", 0), request["q_position"], request["mask"]
        positions = np.asarray(request.get("k_positions", first + np.arange(len(request["k"]))), dtype=np.int64)
        seen = positions <= query if mask["causal"] else np.ones(len(positions), dtype=bool)
        return seen & (positions > query - mask["window"]) if "window" in mask else seen

    def _state(self, out, lse):
        o, lse = out.astype(np.float32), lse.astype(np.float32)
        return {"state": {"schema": "o-lse-v1", "base": "e", "o": o, "lse": lse}}
