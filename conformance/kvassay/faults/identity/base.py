"""What the faults of the contract identity share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from kvassay_reference.admission import Stage, Violation
from kvassay_reference.manifest import Manifest

from ..base import Fault

Record = Mapping[str, Any]
Request = Mapping[str, Any]
Result = dict[str, Any]


class Blind(Fault):
    """The reference without the rules of some reasons."""

    blind: ClassVar[frozenset[str]] = frozenset()

    def violations(self, manifest: Manifest, stage: Stage) -> Iterator[Violation]:
        return (v for v in super().violations(manifest, stage) if v.reason not in self.blind)
