"""kvassay: a conformance suite for engines that retrieve, offload and tier the attention K/V cache."""

from typing import TYPE_CHECKING, Any

from .adapters.base import EngineAdapter, EngineInfo, Pending, Rejected, Unsupported
from .core.model import Verdict

if TYPE_CHECKING:
    from .core.report import Report
    from .library import check

__version__ = "0.1.0"
__all__ = [
    "EngineAdapter",
    "EngineInfo",
    "Pending",
    "Rejected",
    "Report",
    "Unsupported",
    "Verdict",
    "__version__",
    "check",
]


def __getattr__(name: str) -> Any:
    """``check`` and ``Report`` are imported when asked for: an adapter's process needs neither corpus nor schemas."""
    if name == "check":
        from .library import check

        return check
    if name == "Report":
        from .core.report import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
