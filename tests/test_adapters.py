"""The wire, the schemas of its messages, recipes, the worker, the skeleton and the example engines."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from kvassay.adapters import wire
from kvassay.adapters.base import OP_FAMILIES, EngineAdapter
from kvassay.adapters.client import Subprocess
from kvassay.adapters.inbox import Inbox
from kvassay.adapters.init import init_adapter
from kvassay.adapters.names import ENGINES, built_in, connect
from kvassay.adapters.smoke import smoke
from kvassay.adapters.values import RecipeCache, UnfitValue, normalised
from kvassay.core.engine import NotSupported, Refused, Returned
from kvassay.core.tensors import DTYPES, Recipe, dtype_name, expand, write
from kvassay.corpus import load, schemas
from kvassay.corpus.members import members
from kvassay.corpus.ops import ops
from kvassay.runner import Session, run

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(__file__).with_name("miniature_programs.py")
NODE = shutil.which("node")
NON_FINITE = [1.5, math.nan, math.inf, -math.inf, -0.0, 2.0**-100]


def arrays():
    for name, dtype in DTYPES.items():
        values = NON_FINITE if dtype.kind in "fV" else [0, 1, 1, 0]
        for shape in [(len(values),), (0, 3), (), (2, len(values) // 2, 1)]:
            array = np.array(values[0] if shape == () else values[: math.prod(shape)]).astype(dtype).reshape(shape)
            yield pytest.param(array, id=f"{name}-{'x'.join(map(str, shape))}")
    yield pytest.param(np.arange(70.0), id="base64")
    yield pytest.param(np.arange(12.0).reshape(3, 4).T, id="transposed")
    yield pytest.param(np.arange(4, dtype=">i4"), id="big-endian")
    yield pytest.param(np.array(math.nan), id="nan-0d")


# ---- wire --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize("array", list(arrays()))
def test_a_tensor_survives_the_wire(array, frames):
    line, *blobs = wire.encode({"result": {"deep": [{"x": array, "y": 1}]}}, frames=frames)
    body = wire.parse_line(line)
    assert wire.frame_lengths(body) == [len(blob) for blob in blobs]
    back = wire.unpack(body["result"], blobs)["deep"][0]["x"]
    assert dtype_name(back) == dtype_name(array)
    assert back.shape == array.shape
    assert back.tobytes() == np.ascontiguousarray(array, dtype=DTYPES[dtype_name(array)]).tobytes()
    assert not back.flags.writeable


def test_a_recipe_crosses_as_a_recipe_or_as_its_values():
    recipe = Recipe("bfloat16", (3, 2, 4), 9, start=5, settings=((None, 1, None, 8.0),))
    line = wire.encode({"request": {"k": recipe}}, frames=True)[0]
    assert wire.unpack(json.loads(line)["request"], recipes=True)["k"] == recipe
    line, blob = wire.encode({"request": {"k": recipe}}, frames=True, recipes=RecipeCache())
    assert json.loads(line)["frames"] == [48]
    assert blob == expand(recipe).tobytes()


def test_messages_are_cut_wherever_the_reads_fall():
    message = {"id": 7, "result": {"x": np.arange(3.0), "y": np.ones(2, dtype=ml_dtypes.bfloat16)}}
    stream = b"".join(wire.encode(message, frames=True) + wire.encode({"opened": {}}, frames=True))
    for size in (1, 3, len(stream)):
        inbox, kinds = Inbox(), []
        for start in range(0, len(stream), size):
            inbox.feed(stream[start : start + size])
            while (incoming := inbox.take()) is not None:
                kinds.append(incoming.kind)
        assert kinds == ["result", "opened"]
        assert len(inbox) == 0


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ('{"id":1,"result":{}}', Returned({})),
        ('{"id":1,"rejected":{"reason":"NO_LEGAL_ROWS","detail":"none"}}', Refused("NO_LEGAL_ROWS", "none")),
        ('{"id":1,"rejected":{"reason":null}}', Refused(None)),
        ('{"id":1,"unsupported":{}}', NotSupported()),
        ('{"id":1,"unsupported":{"detail":"float8"}}', NotSupported("float8")),
    ],
)
def test_replies_are_read(line, reply):
    inbox = Inbox()
    inbox.feed(line.encode() + b"\n")
    assert inbox.take().reply == reply


HELLO = {"protocol": 1, "engine": {"name": "e", "version": "1"}, "ops": []}
MESSAGES = [
    ("hello", {"hello": {"protocol": [1], "edition": "2026.1"}}, True),
    ("hello", {"hello": {"protocol": [], "edition": "2026.1"}}, False),
    ("hello", {"hello": {"protocol": [1]}}, False),
    ("hello-reply", {"hello": HELLO}, True),
    ("hello-reply", {"hello": {**HELLO, "frames": True, "recipes": ["hash32-v1"], "open": False}}, True),
    (
        "hello-reply",
        {"hello": {**HELLO, "profiles": None, "states": ["o-lse-v1/2"], "variants": ["quest/paper"]}},
        True,
    ),
    ("hello-reply", {"hello": {**HELLO, "states": ["o-lse-v1"]}}, False),
    ("hello-reply", {"hello": {**HELLO, "ops": ["attention"]}}, False),
    ("hello-reply", {"hello": {**HELLO, "ops": ["a.b", "a.b"]}}, False),
    ("hello-reply", {"hello": {**HELLO, "engine": {"name": "", "version": "1"}}}, False),
    ("hello-reply", {"hello": {**HELLO, "capabilities": {"x": {}}}}, False),
    ("hello-reply", {"hello": {**HELLO, "speed": 5}}, False),
    ("hello-reply", {"hello": HELLO, "id": 1}, False),
    ("open", {"open": {}}, True),
    ("open", {"open": None}, False),
    ("opened", {"opened": {}}, True),
    ("failed", {"error": {"detail": "no device"}}, True),
    ("failed", {"error": {}}, False),
    ("call", {"call": "attention.dense", "id": 1, "request": {}, "frames": [64]}, True),
    ("call", {"call": "dense", "id": 1, "request": {}}, False),
    ("call", {"call": "attention.dense", "id": -1, "request": {}}, False),
    ("call", {"call": "attention.dense", "id": 1, "request": {}, "frames": [-5]}, False),
    ("poll", {"poll": "t", "id": 2}, True),
    ("poll", {"poll": "", "id": 2}, False),
    ("close", {"close": {}}, True),
    ("result", {"id": 1, "result": {}}, True),
    ("result", {"id": 1, "result": []}, False),
    ("result", {"id": "1", "result": {}}, False),
    ("result", {"id": 1.5, "result": {}}, False),
    ("rejected", {"id": 1, "rejected": {"reason": None}}, True),
    ("rejected", {"id": 1, "rejected": {}}, False),
    ("rejected", {"id": 1, "rejected": {"reason": 5}}, False),
    ("unsupported", {"id": 1, "unsupported": {}}, True),
    ("unsupported", {"id": 1, "unsupported": True}, False),
    ("pending", {"id": 1, "pending": {"ticket": "t"}}, True),
    ("pending", {"id": 1, "pending": {}}, False),
    ("error", {"id": 1, "error": {"detail": "lost"}}, True),
    ("error", {"id": 1, "error": {"detail": "lost", "kind": "x"}}, False),
]


@pytest.mark.parametrize(("name", "message", "legal"), MESSAGES)
def test_the_schema_of_messages(name, message, legal):
    assert (schemas.problem(message, f"urn:kvassay:wire#/$defs/{name}") is None) == legal
    assert (schemas.problem(message, "urn:kvassay:wire") is None) == legal


def test_the_table_has_every_message_legal_and_illegal():
    names = {reference["$ref"] for side in ("to-engine", "from-engine") for reference in _side(side)}
    tested = {f"#/$defs/{name}" for name, _, legal in MESSAGES if legal}
    assert names == tested


def _side(name):
    return schemas.schemas()["urn:kvassay:wire"]["$defs"][name]["oneOf"]


# ---- values ------------------------------------------------------------------------------------------------------


def test_what_an_adapter_returns_becomes_what_would_come_off_the_wire():
    literal = {"dtype": "float32", "shape": [2], "data": [1, "NaN"]}
    value = {"a": np.float32(0.5), "b": (np.int64(3), np.bool_(True), None), "c": math.inf, "d": literal, "e": "x"}
    result = normalised(value)
    assert result["d"].dtype == np.float32
    assert write(result) == {"a": 0.5, "b": [3, True, None], "c": "Infinity", "d": literal, "e": "x"}
    assert type(result["a"]) is float


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1: 2}, "the key 1 is not a text"),
        ({"x": b"raw"}, "/x: a value of type bytes"),
        ({"x": np.array(["a"])}, "/x: dtype <U1"),
        ({"x": [2**53]}, "/x/0: an integer beyond"),
        ({"x": "\udc00"}, "/x: a string with half a surrogate pair"),
        ({"x": {"dtype": "float32", "shape": [2], "data": [1]}}, "/x: not a tensor"),
        ({"x": {"dtype": "float32", "shape": [2], "recipe": {"name": "hash32-v1", "seed": 1}}}, "/x: a recipe"),
    ],
)
def test_what_no_reply_can_carry_is_named_with_its_place(value, words):
    with pytest.raises(UnfitValue) as caught:
        normalised(value)
    assert words in str(caught.value)


def test_the_recipe_cache_stays_within_its_bytes():
    cache = RecipeCache(limit_bytes=3000)
    first, second, third = (Recipe("float32", (256,), seed) for seed in range(3))
    kept = cache.expand(second)
    cache.expand(first)
    assert cache.expand(second) is kept
    cache.expand(third)
    assert cache.expand(second) is kept
    assert cache._held <= 3000
    assert len(cache._arrays) == 2


# ---- programs and workers ----------------------------------------------------------------------------------------


def test_a_program_without_recipes_gets_values_up_to_a_limit():
    engine = Subprocess([sys.executable, str(PROGRAMS), "good"], label="good")
    small = {"scale": 1, "k": Recipe("float32", (4, 1, 2), 3)}
    large = {"scale": 1, "k": Recipe("float32", (1 << 24, 1, 2), 3)}
    assert isinstance(engine.call("attention.dense", small, 5), Returned)
    reply = engine.call("attention.dense", large, 5)
    assert isinstance(reply, NotSupported)
    assert "more than 64 MiB" in reply.detail
    engine.close()


def test_a_worker_imports_no_validator_and_no_terminal():
    heavy = ("jsonschema", "jsonschema_rs", "referencing", "rich", "click", "kvassay.corpus", "kvassay_reference")
    code = f"import sys, kvassay.adapters.worker; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_op_is_a_method_that_adapters_can_define():
    assert {op.family for op in ops().values()} == OP_FAMILIES, "families.json is generated"


def test_methods_that_are_no_ops_stay_the_adapters_own():
    class Mixed(EngineAdapter):
        def attention_dense(self, request): ...
        def control_advance_clock(self, request): ...
        def load_weights(self, path): ...

        attention_profiles = frozenset()

    assert Mixed.ops() == {"attention.dense", "control.advance_clock"}


@pytest.mark.parametrize("name", sorted(built_in()))
def test_built_in_names_lead_to_classes(name):
    module, _, class_name = built_in()[name].partition(":")
    source = ROOT / "conformance" / Path(*module.split("."))
    assert f"class {class_name}(" in source.with_suffix(".py").read_text(encoding="utf-8")


def test_every_engine_has_a_name():
    engines = {path.stem for path in ENGINES.glob("[!_]*.py") if "EngineInfo(" in path.read_text(encoding="utf-8")}
    engines -= {"reference_residency_lesser"}  # correct engines of the self-test
    assert engines <= {target.partition(":")[0].rpartition(".")[2] for target in built_in().values()}
    for requirements in (ROOT / "requirements").glob("*.adapters"):
        named = [line.split()[0] for line in requirements.read_text().splitlines() if line and not line.startswith("#")]
        assert set(named) <= set(built_in()), requirements.name


# ---- skeleton and examples ---------------------------------------------------------------------------------------


def judged(name):
    corpus = load()
    engine = connect(name)
    try:
        assert smoke(engine, corpus) == []
        return run(Session(engine, corpus), corpus.cases)
    finally:
        engine.close()


def test_the_skeleton_runs_at_once_and_claims_nothing(tmp_path, monkeypatch):
    written = init_adapter(tmp_path / "my")
    assert [path.name for path in written] == ["README.md", "adapter.py"]
    text = (tmp_path / "my" / "adapter.py").read_text(encoding="utf-8")
    for profile in load().profiles.values():
        for op in profile.ops:
            assert f"# def {op.replace('.', '_', 1)}(self, request):" in text
    monkeypatch.syspath_prepend(tmp_path / "my")
    assert {str(result.verdict) for result in judged("adapter:Adapter").results} == {"not-applicable"}
    uncommented = "\n".join(line.replace("    # ", "    ", 1) if "    # " in line else line for line in _ops(text))
    compile(f"class Adapter:\n{uncommented}", "adapter.py", "exec")


def _ops(text):
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    # def "))
    return lines[start:]


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_the_skeleton_overwrites_nothing(tmp_path, language):
    written = init_adapter(tmp_path, language)
    written[-1].write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError):
        init_adapter(tmp_path, language)
    assert written[-1].read_text(encoding="utf-8") == "mine"


def test_the_first_engine_of_the_protocol_page_runs(tmp_path):
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    program = tmp_path / "engine.py"
    program.write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    report = judged(f"cmd: {sys.executable} {program}")
    assert {str(result.verdict) for result in report.results} == {"not-applicable"}


def test_the_python_example_is_blamed_for_nothing(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples" / "python-engine")
    verdicts = [str(result.verdict) for result in judged("adapter:Adapter").results]
    assert set(verdicts) == {"pass", "not-applicable"}
    assert verdicts.count("pass") > 50


ENGINE = ROOT / "examples" / "javascript-engine" / "engine.mjs"
needs_node = pytest.mark.skipif(NODE is None, reason="needs node")


@needs_node
@pytest.mark.parametrize("state", ["fp32-m-l-u-v1", "o-lse-v1/e", "o-lse-v1/2"])
def test_the_javascript_example_is_blamed_for_nothing(state):
    results = judged(f"cmd: {NODE} {ENGINE} --state {state}").results
    blamed = [
        (result.case.id, str(result.verdict), result.finding.message)
        for result in results
        if result.verdict not in ("pass", "not-applicable")
    ]
    assert blamed == []
    assert sum(result.verdict == "pass" for result in results) > 100


@needs_node
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "recipe",
    [
        {"shape": (1, 2, 40), "start": 123_456_789},
        {"shape": (1, 2, 3), "settings": ((None, 1, None, 0.3), (0, None, 2, -7.123), (0, 0, 0, 1e-6))},
        {"shape": (2, 3, 2, 4), "start": 2, "settings": ((4, None, 1, 5.0),)},
    ],
)
def test_the_javascript_example_computes_the_same_recipes(dtype, recipe):
    """Attention over one row returns that row: the values of v come back as they are."""
    v = Recipe(dtype, seed=77, **recipe)
    *rows, heads, width = v.shape
    count = math.prod(rows)
    request = {
        "q": expand(Recipe(dtype, (heads, width), 1)),
        "k": Recipe(dtype, v.shape, 2),
        "v": v,
        "scale": 1.0,
        "kv_head_of": list(range(heads)),
        "mask": {"causal": True, "window": 1},
        "k_first_position": 0,
    }
    if len(rows) == 2:
        request["pages"] = {"page_rows": rows[1], "table": list(range(rows[0])), "rows": count}
    engine = connect(f"cmd: {NODE} {ENGINE}")
    try:
        for row in range(count):
            reply = engine.call("attention.dense", {**request, "q_position": row}, 10)
            expected = expand(v).reshape(count, heads, width)[row].astype(np.float32)
            np.testing.assert_array_equal(reply.value["out"], expected)
    finally:
        engine.close()


@needs_node
def test_the_javascript_example_keeps_rows_apart_by_record_and_prefix():
    engine = connect(f"cmd: {NODE} {ENGINE}")
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    record = {"model": "m", "layer": 1, "tokens": [5, 6, 7]}
    try:
        assert engine.call("identity.put", {"record": record, "data": rows}, 5).value["outcome"] == "stored"
        assert engine.call("identity.put", {"record": record, "data": rows}, 5).value["outcome"] == "resident"
        swapped = dict(reversed(record.items()))
        prefix = engine.call("identity.get", {"record": {**swapped, "tokens": [5, 6, 9]}}, 5).value
        assert (prefix["outcome"], prefix["rows"]) == ("hit", 2)
        np.testing.assert_array_equal(prefix["data"], rows[:2])
        for other in ({"model": "n"}, {"layer": 2}, {"tokens": [6, 5, 7]}, {"adapter_name": ""}):
            assert engine.call("identity.get", {"record": {**record, **other}}, 5).value == {
                "outcome": "miss",
                "rows": 0,
            }
        engine.open()
        assert engine.call("identity.get", {"record": record}, 5).value["outcome"] == "miss"
    finally:
        engine.close()


def test_the_skeleton_spells_out_what_a_method_gets(tmp_path):
    """A large object once, with a hint where it comes again; and each capability with its default."""
    text = init_adapter(tmp_path)[1].read_text(encoding="utf-8")
    assert text.count("cache_salt: Salt that a request adds") == 1
    assert "record: Whose key. Its members: see identity_get." in text
    assert "window: Sliding window" in text
    assert "One of: DEADLINE, CREDIT_PRESSURE." in text
    for name, capability in load().capabilities.items():
        default = json.dumps(capability.default) if isinstance(capability.default, str) else repr(capability.default)
        assert f'# "{name}": {default},' in text


def test_members_are_those_of_every_form_of_an_object():
    (state,) = members(ops()["attention.merge"].schema, "response")
    assert [member.name for member in state.inner] == ["schema", "m", "l", "u", "base", "o", "lse"]
    (states,) = members(ops()["attention.merge"].schema, "request")
    assert states.many
    assert [member.name for member in states.inner][:2] == ["schema", "base"]
