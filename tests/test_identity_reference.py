"""Oracle and reference of the contract identity share no code; on what Hypothesis writes they agree."""

from __future__ import annotations

import copy
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judges import engine, outcome
from kvassay.core import tensors
from kvassay.corpus.data import fixture_module
from kvassay.corpus.schemas import problem
from kvassay.engines.reference import Reference
from kvassay_reference import canonical, reuse
from kvassay_reference.manifest import Manifest, NotAManifest, read, write

oracle = fixture_module("identity.oracle")

digests = st.sampled_from(["0" * 64, "5" * 64, "f" * 64])
texts = st.text(max_size=4)
integers = st.sampled_from([0, 1, 2, 255, 256, 2**32, 2**53 - 1]) | st.integers(0, 2**53 - 1)
lists = st.lists(integers, max_size=4)
FORMS = {
    canonical.Form.INTEGER: integers,
    canonical.Form.TEXT: texts,
    canonical.Form.DIGEST: digests,
    canonical.Form.INTEGERS: lists,
}


EXAMPLES = dict(zip(FORMS, (1, "", "0" * 64, []), strict=True))


@cache
def base() -> dict[str, Any]:
    return dict(oracle.manifest())


def leaves(node: Any, pointer: str = "") -> list[str]:
    """Pointers of all members that are no objects, lists included."""
    if isinstance(node, dict):
        return [at for name, item in node.items() for at in leaves(item, f"{pointer}/{name}")]
    below = (
        [at for i, item in enumerate(node) for at in leaves(item, f"{pointer}/{i}")] if isinstance(node, list) else []
    )
    return [pointer, *below]


def near(value: Any) -> st.SearchStrategy[Any]:
    """Values that stand near another one."""
    if isinstance(value, bool):
        return st.just(not value)
    if isinstance(value, int):
        return st.sampled_from([value - 1, value + 1, 0, 4, 5, 6, 11, 17, 18, 23, 82, 84, 85, 512])
    if isinstance(value, float):
        return st.sampled_from([0.0, -value])
    if isinstance(value, str):
        known = [
            "gpu",
            "host",
            "disk",
            "raw",
            "",
            "tenant-b",
            "released",
            "valid",
            "staged",
            "building",
            "exact",
            "5" * 64,
        ]
        return st.sampled_from(
            [*known, "exact_move", "full_support", "completion", "recompute", "float32", value + "x"]
        )
    if isinstance(value, list):
        return st.sampled_from([value[:-1], [*value, value[-1]] if value else [0], value[::-1], []])
    return st.sampled_from(
        [None, "reject", "exact_promote", {"kind": "exact_resident", "first_position": 6, "end_position": 8}]
    )


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """The base document with one to three near changes, mostly with its digests derived anew."""
    document = copy.deepcopy(base())
    for _ in range(draw(st.integers(1, 3))):
        pointer = draw(st.sampled_from(leaves(document)))
        *path, last = pointer.split("/")[1:]
        node: Any = document
        for part in path:
            node = node[int(part) if isinstance(node, list) else part]
        key = int(last) if isinstance(node, list) else last
        node[key] = draw(near(node[key]))
    return oracle.reseal(document, "")[0] if draw(st.integers(0, 9)) else document


@settings(max_examples=300, deadline=None)
@given(documents())
def test_both_name_the_same_reason(document: dict[str, Any]) -> None:
    request = {"document": document}
    assert outcome(oracle.Oracle().identity_admit, request) == outcome(engine().identity_admit, request)


@settings(max_examples=150, deadline=None)
@given(documents())
def test_both_read_exactly_what_the_schema_allows(document: dict[str, Any]) -> None:
    try:
        assert write(read(Manifest, document)) == document
        legal = True
    except NotAManifest:
        legal = False
    assert legal is (problem(document, "urn:kvassay:identity/manifest") is None)


@pytest.mark.parametrize("kind", list(canonical.KINDS))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_both_encode_to_the_same_bytes(kind: str, data: st.DataObject) -> None:
    one, other = (
        {name: data.draw(st.none() | FORMS[form], label=name) for name, form in canonical.KINDS[kind]} for _ in range(2)
    )
    assert canonical.encode(kind, one) == oracle.encode(kind, one)
    assert (canonical.encode(kind, one) == canonical.encode(kind, other)) is (one == other)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("support", {"positions": [2**64]}),
        ("support", {"positions": [-1]}),
        ("source", {"upstream_sha256": "00"}),
        ("source", {"tensor_sha256": "not hexadecimal"}),
    ],
)
def test_values_that_do_not_fit_are_not_encoded(kind: str, change: dict[str, Any]) -> None:
    fields = {name: EXAMPLES[form] for name, form in canonical.KINDS[kind]}
    assert canonical.encode(kind, fields)
    with pytest.raises((ValueError, struct.error)):
        canonical.encode(kind, fields | change)


@cache
def session() -> tuple[Any, Reference]:
    """Both with the base published."""
    request = {"document": base(), **oracle.payload()}
    by_the_book, reference = oracle.Oracle(), engine()
    by_the_book.identity_publish(request)
    reference.identity_publish(expanded(request))
    return by_the_book, reference


def expanded(request: dict[str, Any]) -> dict[str, Any]:
    read_request: dict[str, Any] = tensors.read(request)
    return read_request


@settings(max_examples=60, deadline=None)
@given(
    head=st.sampled_from([(layer, q, q // 2) for layer in range(2) for q in range(4)]),
    query=st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=2),
    count=st.integers(1, 8),
)
def test_both_find_gather_and_reduce_the_same_rows(head: tuple[int, int, int], query: list[float], count: int) -> None:
    by_the_book, reference = session()
    document = copy.deepcopy(base())
    names = ("layer", "query_head", "kv_head")
    document["operation"] |= dict(zip(names, head, strict=True))
    ask = {"document": document, "query_proxy": {"dtype": "float32", "shape": [2], "data": query}, "count": count}
    found = by_the_book.identity_lookup(ask)
    assert reference.identity_lookup(expanded(ask)) == found

    document["lookup"] = found["receipt"]
    wanted = by_the_book.identity_gather({"document": document})
    got = reference.identity_gather({"document": document})
    assert got["receipt"] == wanted["receipt"]
    for part in ("k", "v", "trace_k", "trace_v"):
        np.testing.assert_array_equal(got[part], tensors.from_json(wanted[part]))

    document["gather"] = wanted["receipt"]
    reduce = {"document": document, "q": oracle.QUERY, "scale": 0.5}
    wanted, got = by_the_book.identity_partial(reduce), reference.identity_partial(expanded(reduce))
    assert got["receipt"] == wanted["receipt"]
    for part in ("m", "l", "u"):
        np.testing.assert_allclose(got["state"][part], tensors.from_json(wanted["state"][part]), rtol=1e-6, atol=1e-6)


SCOPES = {name: {"TEXT": texts, "INTEGER": integers, "DIGEST": digests}[form.name] for name, form in reuse.SCOPE}


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """The base record with a few fields changed or dropped, and tokens from a small vocabulary."""
    record = dict(oracle.record())
    for name in draw(st.lists(st.sampled_from(list(SCOPES)), max_size=2)):
        record[name] = draw(st.just("") if name == "cache_salt" else SCOPES[name])
    for name in draw(st.sets(st.sampled_from(["adapter_name", "adapter_id", "cache_salt"]), max_size=1)):
        record.pop(name, None)
    record["tokens"] = draw(st.lists(st.sampled_from([0, 1, 65536]), min_size=1, max_size=6))
    if draw(st.booleans()):
        position = draw(st.integers(0, len(record["tokens"]) - 1))
        record["multimodal"] = [{"sha256": draw(digests), "position": position, "length": 1}]
    return record


@settings(max_examples=120, deadline=None)
@given(st.lists(records(), min_size=1, max_size=5))
def test_both_reuse_the_same_rows(several: list[dict[str, Any]]) -> None:
    by_the_book, reference = oracle.Oracle(), engine()
    for mark, record in enumerate(several):
        rows = [[mark, i] for i in range(len(record["tokens"]))]
        put = {"record": record, "data": {"dtype": "uint8", "shape": [len(rows), 2], "data": rows}}
        assert by_the_book.identity_put(put) == reference.identity_put(expanded(put))
    for record in several:
        wanted, got = by_the_book.identity_get({"record": record}), reference.identity_get({"record": record})
        assert got.keys() == wanted.keys()
        assert (got["outcome"], got["rows"]) == (wanted["outcome"], wanted["rows"])
        if "data" in wanted:
            np.testing.assert_array_equal(got["data"], tensors.from_json(wanted["data"]))


@settings(max_examples=150, deadline=None)
@given(records(), records())
def test_keys_are_equal_exactly_for_equal_records(a: dict[str, Any], b: dict[str, Any]) -> None:
    assume(a is not b)
    same = oracle.Oracle().identity_key({"record": a}) == oracle.Oracle().identity_key({"record": b})
    assert (reuse.row_keys(a)[-1] == reuse.row_keys(b)[-1]) is same


def test_the_golden_figures_come_out() -> None:
    reconcile = pytest.importorskip("kvassay.corpus.reconcile")
    figures = reconcile.reconciliation("identity")
    assert len(figures) == 5
    assert all(figure.agrees for figure in figures)
