"""The report as JUnit XML: one suite per contract, one test case per case, as CI servers read it."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from .document import Document
from .evidence import as_text, evidence, headline

ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


def render(document: Document) -> str:
    """XML text. A failed SHOULD and a waived case are skipped with a message, since JUnit knows no warnings."""
    results = document["results"]
    root = Element("testsuites", _totals("kvassay", results))
    for contract in dict.fromkeys(result["contract"] for result in results):
        own = [result for result in results if result["contract"] == contract]
        suite = SubElement(root, "testsuite", _totals(contract, own) | {"timestamp": document["started"]})
        properties = SubElement(suite, "properties")
        for name, value in _properties(document).items():
            SubElement(properties, "property", {"name": name, "value": _legal(value)})
        for result in own:
            _case(suite, result, document)
    if document["findings"]:
        _waivers(root, document["findings"])
    indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def outcome(result: Document) -> str | None:
    """``failure``, ``error`` or ``skipped``; ``None`` for a pass."""
    verdict = result["verdict"]
    if verdict == "pass":
        return None
    if result["fails"]:
        return "error" if verdict == "error" else "failure"
    return "skipped"


def _case(suite: Element, result: Document, document: Document) -> None:
    group, _, _ = result["case"].rpartition("/")
    element = SubElement(
        suite,
        "testcase",
        {"classname": group.replace("/", "."), "name": result["case"], "time": f"{result['seconds']:.6f}"},
    )
    kind = outcome(result)
    if kind is None:
        return
    message = _legal(headline(result))
    if kind != "skipped":
        detail = SubElement(element, kind, {"type": result["verdict"], "message": message})
        detail.text = "\n" + _legal(as_text(evidence(result, document["requirements"]))) + "\n"
    else:
        prefix = {"not-applicable": "not applicable", "waived": "waived"}.get(result["verdict"], _uncounted(result))
        SubElement(element, "skipped", {"type": result["verdict"], "message": f"{prefix}: {message}"})


def _uncounted(result: Document) -> str:
    why = "provisional" if result["status"] == "provisional" else "SHOULD"
    return f"{result['verdict']} ({why}, not counted)"


def _waivers(root: Element, findings: list[str]) -> None:
    count = str(len(findings))
    suite = SubElement(
        root,
        "testsuite",
        {"name": "waivers", "tests": count, "failures": count, "errors": "0", "skipped": "0", "time": "0"},
    )
    for line in findings:
        element = SubElement(suite, "testcase", {"classname": "waivers", "name": _legal(line), "time": "0"})
        SubElement(element, "failure", {"type": "waiver", "message": _legal(line)})


def _totals(name: str, results: list[Document]) -> dict[str, str]:
    kinds = [outcome(result) for result in results]
    return {
        "name": name,
        "tests": str(len(results)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": f"{sum(result['seconds'] for result in results):.6f}",
    }


def _properties(document: Document) -> dict[str, str]:
    engine, corpus = document["engine"], document["corpus"]
    return {
        "engine": f"{engine['name']} {engine['version']}",
        **({"adapter": document["adapter"]} if "adapter" in document else {}),
        "corpus.edition": corpus["edition"],
        "corpus.digest": corpus["digest"],
        "spec.version": corpus["spec_version"],
    } | {f"environment.{name}": value for name, value in document["environment"].items()}


def _legal(value: str) -> str:
    return ILLEGAL.sub("\ufffd", value)
