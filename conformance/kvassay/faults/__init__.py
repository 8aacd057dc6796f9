"""Engines that are wrong on purpose, the reference with one defect each, and the self-test that judges the suite.

Every seeded fault is an adapter under its own name here, ``kvassay.faults:StalePromotionPublishes``, whatever contract
it belongs to; where several contracts have one of a name, the contract is named, too:
``kvassay.faults.attention:EmptyMinusItself``. Nothing is imported until one is asked for.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if not name[:1].isupper():  # modules and dunder names
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .seeded import modules

    found = {
        contract: fault for contract, module in modules().items() for fault in module.FAULTS if fault.__name__ == name
    }
    if len(found) > 1:
        raise AttributeError(f"{', '.join(sorted(found))} each have a fault {name}: name the module, too")
    if not found:
        raise AttributeError(f"no seeded fault is called {name!r}")
    return next(iter(found.values()))
