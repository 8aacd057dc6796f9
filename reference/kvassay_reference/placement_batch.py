"""NEO's iteration as its published scheduler forms it: two sub-batches from queues and an affine profile.

The chapter ``spec/placement.md`` states the rule as the variant ``neo/code``. Times are milliseconds of one layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]
PARTS = ("gpu_prefill", "cpu_prefill", "gpu_decode", "cpu_decode")


@dataclass(frozen=True)
class Job:
    """A request: tokens to prefill, or rows of its cache."""

    id: str
    tokens: int


@dataclass(frozen=True)
class Profile:
    """Affine times."""

    linear_base_ms: float
    linear_token_ms: float
    prefill_token_ms: float
    gpu_attention_row_ms: float
    cpu_attention_row_ms: float
    cpu_attention_request_ms: float
    launch_ms: float


@dataclass
class Batch:
    """Requests by part; every time follows from them."""

    profile: Profile
    parts: dict[str, list[Job]] = field(init=False)
    """Requests, in a list for each part."""

    def __post_init__(self) -> None:
        """Begin without requests."""
        self.parts = {name: [] for name in PARTS}

    def tokens(self, *parts: str) -> int:
        """Tokens or rows of some parts."""
        return sum(job.tokens for part in parts for job in self.parts[part])

    @property
    def count(self) -> int:
        """Requests."""
        return sum(map(len, self.parts.values()))

    @property
    def prefills(self) -> int:
        """Requests that are prefilled."""
        return len(self.parts["gpu_prefill"]) + len(self.parts["cpu_prefill"])

    @property
    def width(self) -> int:
        """Tokens of the linear work."""
        decoding = len(self.parts["gpu_decode"]) + len(self.parts["cpu_decode"])
        return self.tokens("gpu_prefill", "cpu_prefill") + decoding

    @property
    def linear_ms(self) -> float:
        """Linear work."""
        return self.profile.linear_base_ms + self.profile.linear_token_ms * self.width

    @property
    def prefill_ms(self) -> float:
        """Prefill attention, on the GPU wherever the cache goes."""
        return self.profile.prefill_token_ms * self.tokens("gpu_prefill", "cpu_prefill")

    @property
    def gpu_attention_ms(self) -> float:
        """Decode attention over caches on the GPU."""
        return self.profile.gpu_attention_row_ms * self.tokens("gpu_decode")

    @property
    def cpu_attention_ms(self) -> float:
        """Decode attention over caches on the CPU."""
        rows = self.profile.cpu_attention_row_ms * self.tokens("cpu_decode")
        return rows + self.profile.cpu_attention_request_ms * len(self.parts["cpu_decode"])

    @property
    def cpu_ms(self) -> float:
        """CPU attention and its launch."""
        return self.cpu_attention_ms + self.profile.launch_ms

    @property
    def gpu_ms(self) -> float:
        """All GPU work."""
        return self.linear_ms + self.prefill_ms + self.gpu_attention_ms

    def drop_prefill(self) -> tuple[str, Job]:
        """Take out the last prefill, first of those whose cache goes to the CPU."""
        part = "cpu_prefill" if self.parts["cpu_prefill"] else "gpu_prefill"
        return part, self.parts[part].pop()


Pair = tuple[Batch, Batch]


def slack_ms(pair: Pair) -> list[float]:
    """Of each sub-batch, the GPU time of its stage less its CPU work."""
    return [
        pair[1 - index].linear_ms + batch.prefill_ms + batch.gpu_attention_ms - batch.cpu_ms
        for index, batch in enumerate(pair)
    ]


@dataclass(frozen=True)
class Queues:
    """What waits, and the limits of an iteration."""

    jobs: Mapping[str, tuple[Job, ...]]
    threshold: int
    """Tokens below which linear work is not saturated."""
    budget: int

    @classmethod
    def read(cls, request: Json) -> Queues:
        """From a request."""
        jobs = {part: tuple(Job(**job) for job in request[part]) for part in PARTS}
        return cls(jobs, request["linear_threshold_tokens"], request["budget"])


def first_batches(queues: Queues, profile: Profile) -> tuple[Pair, Batch]:
    """All GPU work in sub-batch 0, and the same in the batch of the other mode."""
    pair, alone = (Batch(profile), Batch(profile)), Batch(profile)
    for part in PARTS[:3]:
        pair[0].parts[part] += queues.jobs[part]
        alone.parts[part] += queues.jobs[part]
    return pair, alone


def trim(batch: Batch, threshold: int, needed: Callable[[], bool] | None = None) -> None:
    """Drop prefills from the end until one is needed: a GPU prefill, or one that linear work can still take."""
    while batch.prefills:
        part, job = batch.drop_prefill()
        if part == "gpu_prefill" or batch.width < threshold or (needed is not None and needed()):
            batch.parts[part].append(job)
            return


def split_decodes(pair: Pair, queue: Sequence[Job], budget: int) -> None:
    """CPU requests in order of arrival, each to the sub-batch with more slack, while none goes below zero.

    Once a request did not fit, none that is as long is tried again.
    """
    too_long, target = math.inf, 1
    for job in queue:
        if budget == 0:
            return
        if job.tokens >= too_long:
            continue
        pair[target].parts["cpu_decode"].append(job)
        left = slack_ms(pair)
        if min(left) < 0:
            pair[target].parts["cpu_decode"].pop()
            too_long = job.tokens
            continue
        budget -= 1
        target = int(left[1] > left[0])


def faster(pair: Pair, alone: Batch) -> bool:
    """Whether both sub-batches serve strictly more requests a unit of GPU time."""
    together = pair[0].gpu_ms + pair[1].gpu_ms
    return alone.count * together < (pair[0].count + pair[1].count) * alone.gpu_ms


def form(queues: Queues, profile: Profile) -> tuple[Batch, ...]:
    """No batch, one, or two sub-batches."""
    pair, alone = first_batches(queues, profile)
    if not pair[0].count:
        return ()
    trim(alone, queues.threshold)
    split_decodes(pair, queues.jobs["cpu_decode"], queues.budget)
    if not pair[1].count:
        return (alone,)
    trim(pair[0], queues.threshold, lambda: min(slack_ms(pair)) < 0)
    return pair if faster(pair, alone) else (alone,)
