"""kvassay: a conformance suite for engines that retrieve, offload and tier the attention K/V cache."""

from .adapters.base import EngineAdapter, EngineInfo, Pending, Rejected, Unsupported
from .check import check
from .core.model import Verdict
from .core.report import Report

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
