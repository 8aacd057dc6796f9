"""kvassay: a conformance suite for engines that retrieve, offload and tier the attention K/V cache."""

from .adapters.base import EngineAdapter, EngineInfo, Pending, Rejected, Unsupported
from .core.model import Verdict

__version__ = "0.1.0"
__all__ = ["EngineAdapter", "EngineInfo", "Pending", "Rejected", "Unsupported", "Verdict", "__version__"]
