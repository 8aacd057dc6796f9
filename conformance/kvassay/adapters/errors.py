"""The one error that ends a run before it began."""

from __future__ import annotations


class AdapterError(Exception):
    """No engine could be reached: unknown name, failed import, failed ``hello``. The command exits with 3.

    The first line of the message is the whole story in short; what the engine wrote to stderr follows it.
    """

    def __init__(self, message: str, stderr: str = "") -> None:
        super().__init__(message if not stderr else f"{message}\n{stderr}")
        self.message = message
        self.stderr = stderr
