"""Requests for the plans of the contract lifecycle: small numbers, so that equal and just missed ones are frequent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .contract import Draw

Request = dict[str, Any]
MIB = 1 << 20
TIMES = (0, 1, 2, 3, 4, 0.5, 1.5, 0.25, 6)
RATES = (1, 2, 0.5, 20)


def time_ms(draw: Draw) -> float:
    """Mostly from a coarse grid, sometimes to a thousandth."""
    return draw.pick(TIMES) if draw.chance(85) else draw.integer(0, 6000) / 1000


def link(draw: Draw) -> Request:
    """Bandwidth and fixed cost."""
    return {"gib_per_s": draw.pick(RATES), "fixed_ms": time_ms(draw)}


def resume_plan(draw: Draw) -> Request:
    """Up to four layers, whose bytes seldom fall short of the history."""
    token_bytes = draw.pick((16, MIB))
    layers = [
        {"bytes": draw.integer(0, 4) * token_bytes, "compute_ms": time_ms(draw)} for _ in range(draw.integer(1, 4))
    ]
    history = sum(layer["bytes"] for layer in layers) // token_bytes
    return {
        "history_tokens": history + (draw.pick((-1, 1)) if history and draw.chance(8) else 0),
        "new_tokens": draw.integer(0, 8),
        "token_bytes": token_bytes,
        "layers": layers,
        "h2d": link(draw),
        "read_slots": draw.pick((None, 1, 2, 3)),
        **{name: time_ms(draw) for name in ("lookup_ms", "queue_ms", "disk_ms", "work_per_token")},
        **{name: draw.pick(TIMES) for name in ("load_ms_per_token", "prefill_ms_per_token")},
        "turns": [
            {"history_tokens": draw.integer(0, 9), "new_tokens": draw.integer(0, 9)} for _ in range(draw.integer(0, 3))
        ],
    }


def save_plan(draw: Draw) -> Request:
    """Up to five layers, whose read leases close early, late or never."""
    return {
        "layers": [
            {"bytes": draw.integer(0, 4) * MIB, "lease_closed_ms": None if draw.chance(4) else time_ms(draw)}
            for _ in range(draw.integer(1, 5))
        ],
        "d2h": link(draw),
        "window_ms": time_ms(draw),
        "write_slots": draw.integer(0, 6),
    }


def persist(draw: Draw) -> Request:
    """Costs on both sides of the tie, and on it."""
    names = ("idle", "resume_ms", "suffix_gpu_ms", "save_visible_ms", "full_ms", "full_gpu_ms")
    return {
        "reuse_probability": draw.pick((0, 0.25, 0.5, 1)),
        "weights": {name: draw.pick((0, 1, 2)) for name in ("time", "gpu", "transfer_mib", "hold_mib")},
        "history_bytes": draw.integer(0, 3) * MIB,
        **{name: time_ms(draw) for name in names},
    }


def prefetch(draw: Draw) -> Request:
    """A queue that often just fits."""
    return {
        "host_bytes": draw.integer(0, 24),
        "disk_bytes": draw.integer(0, 24),
        "mean_session_bytes": draw.integer(1, 7),
        "reserved_bytes": {name: draw.integer(0, 4) for name in ("writes", "runtime", "emergency")},
        "queue": [{"session": f"s{index}", "bytes": draw.integer(0, 9)} for index in range(draw.integer(0, 4))],
    }


def policy(draw: Draw) -> Request:
    """Up to four interrupted requests that compete for budget and host."""
    names = ["d", "a", "c", "b"]
    return {
        "now_ms": draw.pick((0, 2, 4, 6)),
        "token_bytes": draw.integer(1, 2),
        "other_tokens": draw.integer(0, 4),
        "swap_budget_tokens": draw.integer(0, 9),
        "host_free_bytes": draw.integer(0, 20),
        "requests": [
            {
                "id": draw.pick(names) if draw.chance(5) else names[index],
                "context_tokens": draw.integer(1, 6),
                "chunks": draw.integer(1, 3),
                "call_ms": draw.pick((0, 0, 1, 2, 4)),
                "duration_ms": draw.pick((None, 0, 1, 2, 4, 8)),
                "forward_ms": draw.pick(TIMES),
                "chunk_forward_ms": draw.pick(TIMES),
                "swap_ms": draw.pick((0, 0.5, 1, 2)),
            }
            for index in range(draw.integer(0, 4))
        ],
    }


def swap_budget(draw: Draw) -> Request:
    """Pieces that divide a context with and without a rest."""
    return {
        "context_tokens": draw.integer(0, 24),
        "token_bytes": draw.pick((65536, 131072, MIB)),
        "foreground_ms": time_ms(draw),
        "link": link(draw),
        "saturation_tokens": draw.integer(0, 9),
        "running_tokens": draw.integer(0, 9),
    }


PLANS: dict[str, Callable[[Draw], Request]] = {
    f"lifecycle.{one.__name__}": one for one in (resume_plan, save_plan, persist, prefetch, policy, swap_budget)
}
"""Op to a request of it."""
