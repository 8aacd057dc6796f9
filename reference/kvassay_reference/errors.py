"""How the reference refuses a request."""


class Refusal(ValueError):
    """The request is not legal; ``reason`` is a code of the registries ``schemas/*/reasons.json``."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
