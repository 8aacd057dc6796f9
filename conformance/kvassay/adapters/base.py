"""What an engine developer writes: a class with one method per op.

An adapter maps, it does not repair: fencing, checking or filtering done here hides what the engine does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..core.model import EngineDescription, Json

OP_FAMILIES = frozenset(json.loads((Path(__file__).parent / "families.json").read_text(encoding="utf-8")))
"""First parts of the names of ops; methods that begin otherwise are the adapter's own affair. The file is generated."""


@dataclass(frozen=True)
class EngineInfo:
    """Who the engine is; the version stands in every report."""

    name: str
    version: str
    homepage: str = ""
    language: str = "Python"
    notes: str = ""


class Rejected(Exception):
    """The engine refused the request.

    ``reason`` is a code of the registries ``schemas/*/reasons.json``, or ``None`` when none fits: an unmapped rejection
    counts as a wrong reason, never as a pass.
    """

    def __init__(self, reason: str | None, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class Unsupported(Exception):
    """The engine cannot take this request at all, such as an unknown dtype; the case is not applicable."""


@dataclass(frozen=True)
class Pending:
    """The engine has started and will answer later; the judge calls ``poll(ticket)`` until the deadline."""

    ticket: str


class EngineAdapter:
    """Base class of adapters.

    An op ``identity.key`` is supported exactly when the method ``identity_key`` is defined; a control
    ``control.hold`` when ``control_hold`` is. A method gets the request as a mapping whose tensors are read-only
    NumPy arrays (bfloat16 by ``ml_dtypes``) and returns the result as a mapping with NumPy arrays. It raises
    :class:`Rejected` or :class:`Unsupported`, or returns :class:`Pending`; any other exception is an error of
    the engine.
    """

    engine: ClassVar[EngineInfo]
    profiles: ClassVar[frozenset[str] | None] = None
    """Profiles claimed; ``None`` claims each profile all of whose ops are defined."""
    states: ClassVar[tuple[str, ...]] = ()
    """Partial-state schemas spoken, preferred first: ``fp32-m-l-u-v1``, ``o-lse-v1/e``, ``o-lse-v1/2``."""
    variants: ClassVar[frozenset[str]] = frozenset()
    capabilities: ClassVar[Mapping[str, Json]] = {}
    """Values of the registries ``schemas/*/capabilities.json``."""

    def setup(self) -> None:
        """Start what is expensive; called once a run, before :meth:`describe`."""

    def open(self) -> None:
        """Give the next case a fresh engine; nothing that an earlier case stored may be visible."""

    def teardown(self) -> None:
        """End what :meth:`setup` started; called once a run."""

    def poll(self, ticket: str) -> Mapping[str, Any] | Pending:
        """The result of a pending call, or the ticket again."""
        raise NotImplementedError(f"this adapter returned a ticket ({ticket}) but defines no poll()")

    @classmethod
    def ops(cls) -> frozenset[str]:
        """Ops and controls whose methods the class defines."""
        own = (name for name in dir(cls) if name.partition("_")[0] in OP_FAMILIES and name.partition("_")[2])
        return frozenset(name.replace("_", ".", 1) for name in own if callable(getattr(cls, name)))

    def describe(self) -> EngineDescription:
        """What the engine says of itself; derived from the class, seldom overridden."""
        info = self.engine
        return EngineDescription(
            name=info.name,
            version=info.version,
            homepage=info.homepage,
            language=info.language,
            notes=info.notes,
            ops=self.ops(),
            profiles=self.profiles,
            states=self.states,
            variants=self.variants,
            capabilities=dict(self.capabilities),
        )
