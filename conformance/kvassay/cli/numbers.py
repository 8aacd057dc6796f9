"""Numbers that several commands take as options."""

from __future__ import annotations

import math
from typing import Any

import click


class Positive(click.FloatRange):
    """A number above 0. NaN is within every range that is checked by comparison, so it is refused apart."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(min=0, min_open=True, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error for anything else."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


SCALE = Positive(most=1000)
"""What deadlines are multiplied by."""
SECONDS = Positive()
"""How long something may take."""
