"""Costs of moving: the regime of a restored prefix, staging through several tiers, FlexGen's placement policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import Refusal

Json = Mapping[str, Any]


# ---- regime ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Regime:
    """Restoring cached tokens against computing new ones."""

    kappa_crit: float
    ratio: float
    transfer_ms: float
    compute_ms: float

    @property
    def bound(self) -> str:
        """``transfer`` only where it takes longer."""
        return "transfer" if self.transfer_ms > self.compute_ms else "compute"


def regime(
    cached: int, new: int, kv_bytes: int, flop_per_token: float, bytes_per_s: float, flop_per_s: float
) -> Regime:
    """Both ideal times, their tokens' ratio, and the ratio at which the times are equal."""
    return Regime(
        kappa_crit=flop_per_token / kv_bytes * bytes_per_s / flop_per_s,
        ratio=cached / new,
        transfer_ms=cached * kv_bytes / bytes_per_s * 1e3,
        compute_ms=new * flop_per_token / flop_per_s * 1e3,
    )


def overlapped_ms(found: Regime, eta: float, evidence: str) -> float:
    """Both times less the measured share of the shorter one."""
    if not 0.0 <= eta <= 1.0:
        raise Refusal("ETA_OUT_OF_RANGE", str(eta))
    if evidence != "measured":
        raise Refusal("ETA_NOT_MEASURED")
    return found.transfer_ms + found.compute_ms - eta * min(found.transfer_ms, found.compute_ms)


# ---- staging through tiers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """One hop or transformation on the way."""

    resource: str
    fixed_ms: float
    bytes_per_s: float

    def takes(self, size: int) -> float:
        """Milliseconds for one piece."""
        return self.fixed_ms + size / self.bytes_per_s * 1e3


def unchunked_ms(stages: Sequence[Stage], chunks: Sequence[int]) -> float:
    """The payload as one piece, stage after stage."""
    return sum(stage.takes(sum(chunks)) for stage in stages)


def chunked_ms(stages: Sequence[Stage], chunks: Sequence[int]) -> float:
    """Chunks in order, each through its stages; a resource holds one piece at a time."""
    free: dict[str, float] = dict.fromkeys((stage.resource for stage in stages), 0.0)
    arrived = 0.0
    for size in chunks:
        arrived = 0.0
        for stage in stages:
            arrived = free[stage.resource] = max(arrived, free[stage.resource]) + stage.takes(size)
    return arrived


def formula_ms(stages: Sequence[Stage], chunks: Sequence[int]) -> float | None:
    """Sum of the stages and n - 1 times the longest; ``None`` where chunks differ or stages share a resource."""
    if len(set(chunks)) != 1 or len({stage.resource for stage in stages}) != len(stages):
        return None
    each = [stage.takes(chunks[0]) for stage in stages]
    return sum(each) + (len(chunks) - 1) * max(each)


# ---- FlexGen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """Seconds of one layer in one phase, by resource."""

    host_to_gpu_s: float
    gpu_to_host_s: float
    disk_to_host_s: float
    host_to_disk_s: float
    compute_s: float


def longest(terms: Terms) -> float:
    """Perfect overlap: the longest of the five terms."""
    return float(max(vars(terms).values()))


def prefill_sums(terms: Terms) -> float:
    """The published optimiser's prefill: two hops of one way are added."""
    up, down = terms.host_to_gpu_s + terms.disk_to_host_s, terms.gpu_to_host_s + terms.host_to_disk_s
    return max(up, down, terms.compute_s)


def generation_sums(terms: Terms) -> float:
    """The published optimiser's generation: nothing overlaps with what comes to the GPU."""
    return terms.host_to_gpu_s + max(terms.gpu_to_host_s, terms.disk_to_host_s, terms.host_to_disk_s, terms.compute_s)


RULES = {"flexgen/paper": (longest, longest), "flexgen/code": (prefill_sums, generation_sums)}
"""Variant to the time of a layer in prefill and in generation."""


@dataclass(frozen=True)
class Policy:
    """A block of sequences in GPU batches, and the shares of three classes on GPU, host and disk."""

    block_batch: int
    gpu_batch: int
    weights: tuple[float, float, float]
    cache: tuple[float, float, float]
    hidden: tuple[float, float, float]

    @classmethod
    def read(cls, policy: Json) -> Policy:
        """From its JSON form; raises :class:`Refusal` where it places no byte or one twice."""
        shares = {
            kind: tuple(policy[kind][tier] for tier in ("gpu", "host", "disk"))
            for kind in ("weights", "cache", "hidden")
        }
        if policy["block_batch"] % policy["gpu_batch"]:
            raise Refusal("BATCH_NOT_MULTIPLE")
        for kind, parts in shares.items():
            if abs(sum(parts) - 1.0) > 1e-9:
                raise Refusal("SHARES_NOT_WHOLE", kind)
        return cls(policy["block_batch"], policy["gpu_batch"], **shares)


@dataclass(frozen=True)
class Model:
    """A decoder with multi-head attention whose weights, activations and K/V have 16 bits."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    prompt_tokens: int
    generated_tokens: int

    @property
    def weight_bytes(self) -> int:
        """Bytes of one layer's weights; also the flop of one token in its matrix products."""
        return 8 * self.hidden**2 + 4 * self.hidden * self.ffn

    @property
    def total_tokens(self) -> int:
        """Prompt and generated tokens."""
        return self.prompt_tokens + self.generated_tokens


def prefill(model: Model, hardware: Json, policy: Policy) -> Terms:
    """Five terms of one layer in prefill."""
    s, weights = model.prompt_tokens, model.weight_bytes
    hidden, cache = 2 * model.hidden * policy.block_batch * s, 4 * model.hidden * policy.block_batch
    away_h, away_c = policy.hidden[1] + policy.hidden[2], policy.cache[1] + policy.cache[2]
    return Terms(
        (weights * (policy.weights[1] + policy.weights[2]) + hidden * away_h) / hardware["host_to_gpu"],
        cache * (s + 1) * away_c / hardware["gpu_to_host_cache"] + hidden * away_h / hardware["gpu_to_host_hidden"],
        (weights * policy.weights[2] + hidden * policy.hidden[2]) / hardware["disk_to_host"],
        cache * (s + 1) * policy.cache[2] / hardware["host_to_disk_cache"]
        + hidden * policy.hidden[2] / hardware["host_to_disk_hidden"],
        policy.block_batch * s * weights / hardware["prefill_matmul_flop_per_s"]
        + cache * s**2 / hardware["prefill_attention_flop_per_s"],
    )


def generation(model: Model, hardware: Json, policy: Policy) -> Terms:
    """Five terms of one layer in one step of generation, at the mean length."""
    weights, length = model.weight_bytes, model.prompt_tokens + model.generated_tokens / 2
    hidden, cache = 2 * model.hidden * policy.block_batch, 4 * model.hidden * policy.block_batch
    away_h, away_c = policy.hidden[1] + policy.hidden[2], policy.cache[1] + policy.cache[2]
    return Terms(
        (weights * (policy.weights[1] + policy.weights[2]) + hidden * away_h) / hardware["host_to_gpu"],
        hidden * away_h / hardware["gpu_to_host_hidden"],
        (cache * length * policy.cache[2] + hidden * policy.hidden[2]) / hardware["disk_to_host"]
        + weights * policy.weights[2] / hardware["disk_to_host_weights"],
        (cache * policy.cache[2] + hidden * policy.hidden[2]) / hardware["host_to_disk_generation"],
        policy.block_batch * weights / hardware["generation_matmul_flop_per_s"]
        + cache * length * policy.cache[0] / hardware["generation_attention_flop_per_s"]
        + cache * length * away_c / hardware["host_flop_per_s"],
    )


@dataclass(frozen=True)
class Peaks:
    """Peak memory of both phases by tier, as the published optimiser bounds it."""

    gpu_peak_bytes: float
    host_peak_bytes: float
    disk_peak_bytes: float


def peaks(model: Model, policy: Policy) -> Peaks:
    """What stays on each tier, and what is at work beside it: [prefill, generation], of which the larger counts."""
    h1, h2, heads, batch = model.hidden, model.ffn, model.heads, policy.gpu_batch
    weights, total = model.weight_bytes, model.total_tokens
    tokens = np.array([model.prompt_tokens, 1.0])
    kept_hidden = 2 * h1 * policy.block_batch * tokens
    kept_cache = 4 * h1 * policy.block_batch * model.layers * np.array([model.prompt_tokens, total])
    on_gpu, off_gpu = policy.weights[0], 1 - policy.weights[0]
    batch_hidden = 2 * h1 * batch * tokens
    linear = batch * tokens * (14 * h1 + 2 * h2)
    scores = np.array(
        [
            batch * model.prompt_tokens * (4 * h1 + 2 * heads * model.prompt_tokens),
            policy.cache[0] * batch * (4 * h1 * (total + 1) + 2 * heads * total + 4 * total * h1),
        ]
    )
    gpu = weights * model.layers * on_gpu + policy.hidden[0] * kept_hidden + policy.cache[0] * kept_cache[1]
    gpu = gpu + 2 * weights * off_gpu + batch_hidden * (1 - policy.hidden[0]) + linear + scores
    host = weights * model.layers * policy.weights[1] + policy.hidden[1] * kept_hidden + policy.cache[1] * kept_cache
    host = host + np.array(
        [
            weights * off_gpu + batch_hidden[0] * (1 - policy.hidden[0]),
            weights * policy.weights[2]
            + batch * h1 * (4 * policy.hidden[2] + 8 * total * policy.cache[2] + 2)
            + 2 * heads * total * batch,
        ]
    )
    disk = weights * model.layers * policy.weights[2] + policy.hidden[2] * kept_hidden[0]
    return Peaks(float(gpu.max()), float(host.max()), float(disk + policy.cache[2] * kept_cache[1]))


@dataclass(frozen=True)
class Cost:
    """One policy under one rule."""

    prefill: Terms
    generation: Terms
    prefill_layer_s: float
    generation_layer_s: float
    prefill_s: float
    generation_s: float
    tokens_per_s: float
    peaks: Peaks

    @property
    def total_s(self) -> float:
        """Both phases."""
        return self.prefill_s + self.generation_s


def cost(model: Model, hardware: Json, policy: Policy, rule: str) -> Cost:
    """Terms, times and peaks of a policy."""
    first, later = prefill(model, hardware, policy), generation(model, hardware, policy)
    of_prefill, of_generation = RULES[rule]
    prefill_s = of_prefill(first) * model.layers
    generation_s = of_generation(later) * (model.generated_tokens - 1) * model.layers
    return Cost(
        prefill=first,
        generation=later,
        prefill_layer_s=of_prefill(first),
        generation_layer_s=of_generation(later),
        prefill_s=prefill_s,
        generation_s=generation_s,
        tokens_per_s=policy.block_batch * model.generated_tokens / (prefill_s + generation_s),
        peaks=peaks(model, policy),
    )


def fits(found: Peaks, budgets: Json) -> bool:
    """Whether every peak is within its budget."""
    return all(getattr(found, f"{tier}_peak_bytes") <= budgets[f"{tier}_bytes"] for tier in ("gpu", "host", "disk"))


def choose(costs: Sequence[Cost], budgets: Json) -> int:
    """The policy that fits with the highest throughput, the first of equals."""
    fitting = [index for index, one in enumerate(costs) if fits(one.peaks, budgets)]
    if not fitting:
        raise Refusal("NO_FEASIBLE_POLICY")
    return max(fitting, key=lambda index: costs[index].tokens_per_s)
