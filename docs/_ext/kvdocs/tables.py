"""Tables and phrases about cases, faults, registries and traceability, as MyST text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvassay.monitors.requirements import ACCOUNTS

from . import data
from .markdown import code, line, need, needs, table, value

Data = dict[str, Any]
SMALL = 64
"""Elements up to which a tensor is shown in full."""


def cases(root: Path, contract: str) -> str:
    """The cases of a contract: what each shows, how, and how binding it is."""
    rows = [
        [
            need(case["id"]),
            f"**{line(case['title'])}**. {line(case['why'])}",
            needs(case["requirements"]),
            f"{case['kind']}, {case['level']}, {case['profile']}"
            + (", provisional" if case["status"] == "provisional" else ""),
        ]
        for case in data.cases(root, contract)
    ]
    return table(["Case", "What it shows", "Tests", "Kind, level, profile"], rows, widths="28 42 14 16")


def faults(contract: str) -> str:
    """The faults of a contract: what is broken, which requirement, and the case meant for it."""
    rows = [
        [
            need(fault.id, fault.name),
            line(fault.text.partition("\n\n")[0]),
            need(fault.requirement),
            needs(fault.killed_by),
        ]
        for fault in data.faults(contract)
    ]
    return table(["Fault", "Defect", "Breaks", "Killed by"], rows, widths="18 40 12 30")


def rules(account: str) -> str:
    """The rules of one monitor: the word that its findings print, what it says, and the requirements behind it."""
    rows = [[code(one.rule), line(one.rule.meaning), needs(one.requirements)] for one in ACCOUNTS[account]]
    return table(["Rule", "What is wrong", "Requirements"], rows, widths="22 56 22")


def reasons(root: Path, plane: str) -> str:
    """The reasons of one plane."""
    rows = [
        [
            f"({row['code'].lower().replace('_', '-')})=\n    {code(row['code'])}",
            line(row["contract"]),
            line(row["meaning"]),
            line(row["action"]),
        ]
        for row in data.registry(root, "reasons")
        if row["plane"] == plane
    ]
    return table(["Reason", "Contract", "Meaning", "What to do"], rows, widths="25 13 31 31")


def profiles(root: Path) -> str:
    """The profiles and their ops."""
    rows = [
        [code(row["name"]), line(row["contract"]), line(row["meaning"]), ", ".join(code(op) for op in row["ops"])]
        for row in data.registry(root, "profiles")
    ]
    return table(["Profile", "Contract", "What an engine claims with it", "Ops"], rows, widths="14 12 42 32")


def capabilities(root: Path) -> str:
    """The capabilities that an engine declares, and what silence means."""
    rows = [
        [
            code(row["name"]),
            line(row["meaning"]),
            ", ".join(value(item) for item in row["values"]),
            value(row["default"]),
        ]
        for row in data.registry(root, "capabilities")
    ]
    return table(["Capability", "Meaning", "Values", "Default"], rows, widths="26 42 20 12")


def variants(root: Path) -> str:
    """The variants of methods, and how each is known."""
    rows = [
        [code(row["name"]), line(row["method"]), line(row["meaning"]), line(row["evidence"])]
        for row in data.registry(root, "variants")
    ]
    if not rows:
        return "No method of this edition has variants."
    return table(["Variant", "Method", "Rule", "Evidence"], rows, widths="20 20 46 14")


def step(item: Data) -> str:
    """One step on one line: the op, what must come back, what is kept."""
    text = f"{code(item['op'])} {expectation(item['expect'])}"
    if item.get("bind"):
        text += "; keeps " + ", ".join(code(name) for name in item["bind"])
    if item.get("witness"):
        text += "; witness " + ", ".join(f"{code(w['at'])} at least {w['minimum']}" for w in item["witness"])
    if "repeat" in item:
        times, plus = item["repeat"]["times"], item["repeat"].get("plus", 0)
        often = code(times) if isinstance(times, str) else str(times)
        text += f"; made {often}{f' {plus:+d}' if plus else ''} times"
    return f"{text}. {line(item['note'])}" if item.get("note") else f"{text}."


def expectation(expect: Data) -> str:
    """What must come back, in words."""
    if "rejects" in expect:
        text = f"rejects with [{code(expect['rejects'])}](#{expect['rejects'].lower().replace('_', '-')})"
    elif "equals" in expect:
        text = "returns " + " and ".join(_exact(item) for item in expect["equals"])
    elif "any_of" in expect:
        text = "returns " + ", or ".join(" and ".join(_exact(item) for item in row) for row in expect["any_of"])
    elif "close" in expect:
        text = "returns numbers within the bound at " + " and ".join(
            code(item["at"] or "/") + (" (if any)" if item.get("optional") else "") for item in expect["close"]
        )
    elif "selects" in expect:
        text = "selects what keeps its floors at " + " and ".join(
            code(item["at"] or "/") for item in expect["selects"]["supports"]
        )
        if "close" in expect["selects"]:
            text += ", with numbers within the bound at " + " and ".join(
                code(item["at"] or "/") for item in expect["selects"]["close"]
            )
    else:
        text = "is accepted"
    if expect.get("may_reject"):
        text += ", or rejects for any reason"
    if expect.get("on_reject"):
        text += f" (rejected: {expect['on_reject']})"
    if expect.get("else"):
        text += f" (otherwise {expect['else']})"
    return text


def _exact(item: Data) -> str:
    return f"{code(item['at'] or '/')} = {value(item['value'], 80)}" + (" if present" if item.get("optional") else "")


def relation(item: Data) -> str:
    """A relation in words."""
    words = {
        "equal": "are equal",
        "distinct": "are all different",
        "close": "agree within the bound",
        "le": "do not decrease in this order",
        "subset": "are each contained in the next",
        "permutation": "hold the same elements in some order",
    }
    return f"{' and '.join(code(name) for name in item['of'])} {words[item['relation']]}"


def mutation(item: Data) -> str:
    """What one mutation changes in its base document."""
    change = item["change"]
    new = f" with {value(change['value'])}" if "value" in change else ""
    resealed = item["resealed"]
    sealed = ", ".join(code(pointer) for pointer in resealed) if len(resealed) < 4 else f"{len(resealed)} digests"
    by = {"schema": "The schema alone rejects it", "semantics": "Only semantics can reject it"}[item["rejected_by"]]
    return (
        f"Change in {code(item['base'])}: {change['op']} {code(change['path'])}{new}. "
        f"Resealed after it: {sealed or 'nothing'}. {by}."
    )


MUTATION_STEPS = ("The whole base", "The changed one", "The whole base again")
"""What the three steps of a mutation send."""


def tensor(item: Mapping[str, Any]) -> str:
    """A tensor in a cell: its type and shape, and its elements when they are few."""
    head = f"{item['dtype']}{item['shape']}"
    if "recipe" in item:
        recipe = item["recipe"]
        return f"{code(head)}, {recipe['name']} seed {recipe['seed']}"
    if isinstance(item["data"], str) or math.prod(item["shape"]) > SMALL:
        return code(head)
    return f"{code(head)} {code(_numbers(item['data']))}"


def _numbers(node: Any) -> str:
    if isinstance(node, list):
        return "[" + ", ".join(_numbers(item) for item in node) + "]"
    return f"{node:.6g}" if isinstance(node, float) else str(node)


def _leaves(node: Any, path: str) -> list[tuple[str, str]]:
    """Members of a request or an expected value, tensors whole, as (pointer, cell)."""
    if isinstance(node, Mapping) and "dtype" in node and "shape" in node:
        return [(path, tensor(node))]
    if isinstance(node, Mapping) and "$bind" not in node and "$base" not in node and node:
        return [leaf for key, item in node.items() for leaf in _leaves(item, f"{path}/{key}")]
    if isinstance(node, list) and node and all(isinstance(item, Mapping) for item in node):
        return [leaf for i, item in enumerate(node) for leaf in _leaves(item, f"{path}/{i}")]
    if isinstance(node, Mapping) and "$bind" in node:
        return [(path, f"{code(node['$bind'])} of an earlier step")]
    if isinstance(node, Mapping) and "$base" in node:
        return [(path, f"{code(node['$base'])}" + (" with changes" if node.get("patch") else ""))]
    return [(path, code(_numbers(node)))]


def example(case: Data) -> str:
    """A small case with its numbers: what is sent and what must come back."""
    rows: list[Sequence[str]] = []
    for i, item in enumerate(case["steps"], 1):
        label = f"{i}: {code(item['op'])}"
        for path, cell in _leaves(item["request"], ""):
            rows.append([label, "sent", code(path), cell])
            label = ""
        expect = item["expect"]
        expected = [
            leaf
            for part in (*expect.get("close", ()), *expect.get("equals", ()))
            for leaf in _leaves(part["value"], part["at"])
        ]
        for path, cell in expected:
            rows.append(["", "expected", code(path), cell])
        if not expected:
            rows.append(["", "expected", "", expectation(expect)])
    text = f"{need(case['id'])}: {line(case['given'])}\n\n" + table(
        ["Step", "", "Member", "Value"], rows, widths="18 12 18 52"
    )
    relations = case.get("relations", ())
    return text + "".join(f"\nThen {relation(item)}.\n" for item in relations)


def base_value(node: Any, limit: int = 12) -> str:
    """What stands at a pointer of a base document: a table of members, or one value."""
    if isinstance(node, Mapping) and len(node) <= limit:
        rows = [
            [code(name), tensor(item) if isinstance(item, Mapping) and "dtype" in item else value(item)]
            for name, item in node.items()
        ]
        return table(["Member", "Value"], rows, widths="35 65")
    return f"{value(node, 400)}\n"


def trace(root: Path, contract: str) -> str:
    """Requirement by requirement: its cases, its faults, and what each engine that claims them got."""
    reports = {name: verdicts(report) for name, report in data.reports(root).items()}
    rows = []
    for requirement in data.requirements(root):
        if requirement["contract"] != contract:
            continue
        cases = [case["id"] for case in data.cases(root, contract) if requirement["id"] in case["requirements"]]
        faults = [fault for fault in data.faults(contract) if fault.requirement == requirement["id"]]
        counts = {name: Counter(found[case] for case in cases if case in found) for name, found in reports.items()}
        rows.append(
            [
                need(requirement["id"]),
                needs(cases),
                ", ".join(need(fault.id, fault.name) for fault in faults),
                "; ".join(text for name, count in counts.items() if (text := _judged(name, count))),
            ]
        )
    return table(["Requirement", "Cases", "Faults", "Engines"], rows, widths="13 37 20 30")


def _judged(engine: str, count: Counter[str]) -> str:
    """What one engine got in the cases that apply to it."""
    said = [f"{n} {verdict}" for verdict, n in sorted(count.items(), reverse=True) if verdict != "not-applicable"]
    return f"{line(engine)}: {', '.join(said)}" if said else ""


def verdicts(report: Data) -> dict[str, str]:
    """Case id to verdict, as one engine's report holds them."""
    return {result["case"]: result["verdict"] for result in report["results"]}
