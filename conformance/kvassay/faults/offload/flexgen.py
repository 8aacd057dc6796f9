"""Faults of *FlexGen* (OFF-027 to OFF-029)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvassay_reference.offload_cost import Cost, Model, Policy

from ..base import Fault, found
from .base import Request, case


class SumsForPaper(Fault):
    """The paper's rule is taken from the code."""

    requirement = "OFF-027"
    killed_by = case("policy/fixed-paper", "policy/found-paper", "policy/disk-paper")

    def cost(self, model: Model, hardware: Request, policy: Policy, rule: str) -> Cost:
        return super().cost(model, hardware, policy, "flexgen/code")


class LongestForCode(Fault):
    """The code's rule is taken from the paper."""

    requirement = "OFF-028"
    killed_by = case("policy/fixed-code", "policy/found-code", "policy/disk-code")

    def cost(self, model: Model, hardware: Request, policy: Policy, rule: str) -> Cost:
        return super().cost(model, hardware, policy, "flexgen/paper")


class FirstTokenTwice(Fault):
    """Generation is counted for every token, though prefill yields the first."""

    requirement = "OFF-027"
    killed_by = case("policy/fixed-paper", "policy/disk-paper")

    def cost(self, model: Model, hardware: Request, policy: Policy, rule: str) -> Cost:
        found = super().cost(model, hardware, policy, rule)
        generation_s = found.generation_s * model.generated_tokens / (model.generated_tokens - 1)
        total = found.prefill_s + generation_s
        tokens = policy.block_batch * model.generated_tokens
        return replace(found, generation_s=generation_s, tokens_per_s=tokens / total)


class FastestRegardless(Fault):
    """The fastest policy is chosen, and memory is looked at later."""

    requirement = "OFF-029"
    killed_by = case("policy/search", "policy/nothing-fits-gpu", "policy/nothing-fits-host", "policy/nothing-fits-disk")

    def choose(self, costs: Sequence[Cost], budgets: Request) -> int:
        return max(range(len(costs)), key=lambda index: costs[index].tokens_per_s)


class LastOfEquals(Fault):
    """Of equal policies the last one is chosen."""

    requirement = "OFF-029"
    killed_by = case("policy/ties-go-to-the-first")

    def choose(self, costs: Sequence[Cost], budgets: Request) -> int:
        return len(costs) - 1 - super().choose(costs[::-1], budgets)


class SharesNormalised(Fault):
    """Shares that do not add up are scaled until they do."""

    requirement = "OFF-029"
    killed_by = case("policy/shares-do-not-add-up")

    def read_policy(self, policy: Request) -> Policy:
        shares = {
            kind: {tier: value / sum(policy[kind].values()) for tier, value in policy[kind].items()}
            for kind in ("weights", "cache", "hidden")
        }
        return super().read_policy({**policy, **shares})


class BatchesRounded(Fault):
    """A block that is no whole number of batches is rounded up."""

    requirement = "OFF-029"
    killed_by = case("policy/block-of-batches")

    def read_policy(self, policy: Request) -> Policy:
        batch = policy["gpu_batch"]
        return super().read_policy({**policy, "block_batch": -(-policy["block_batch"] // batch) * batch})


FAULTS = found(globals())
