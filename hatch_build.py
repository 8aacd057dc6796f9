"""Put the shipped data into the wheel, and only into a real wheel.

An editable install reads the clone's own folders, so nothing is copied for it: a copy would go stale.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = {
    "schemas": "kvassay/schemas",
    "fixtures": "kvassay/fixtures",
    "spec": "kvassay/spec",
    "examples": "kvassay/examples",
}


class DataHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        for folder, target in DATA.items():
            root = Path(self.root, folder)
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    build_data["force_include"][str(path)] = f"{target}/{path.relative_to(root).as_posix()}"
