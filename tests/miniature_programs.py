"""Programs that break the protocol when the scale of a request is 13: ``cmd: python miniature_programs.py NAME``.

The standard library alone, as a program in another language would be. Each costs one verdict and never the run.
"""

import json
import os
import sys
import time

OUT = {"dtype": "float32", "shape": [1, 1], "data": [[1]]}
HELLO = {
    "protocol": 1,
    "engine": {"name": "program", "version": "1"},
    "ops": ["attention.dense"],
    "profiles": ["dense"],
}


def say(message):
    write(json.dumps(message).encode() + b"\n")


def write(raw):
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def result(body):
    return {"id": body["id"], "result": {"out": OUT}}


def serve(bad=None, hello=HELLO, before=None):
    """An obedient loop but for ``bad``; ``before`` runs ahead of every answer."""
    for line in sys.stdin:
        body = json.loads(line)
        if before is not None:
            before()
        if "hello" in body:
            say({"hello": hello})
        elif "open" in body:
            say({"opened": {}})
        elif "close" in body:
            return
        elif "call" in body and body["call"] != "attention.dense":
            say({"id": body["id"], "unsupported": {}})
        elif "call" in body and body["request"]["scale"] == 13:
            bad(body)
        else:
            say(result(body))


# ---- one function a program; the docstring says what is wrong ----------------------------------------------------


def good():
    """Nothing."""
    serve(lambda body: say(result(body)))


def garbage():
    """A line that is not JSON."""
    serve(lambda body: write(b"Loading weights: 100%\n"))


def bare_list():
    """JSON, and no object."""
    serve(lambda body: write(b"[]\n"))


def nested():
    """200,000 brackets."""
    serve(lambda body: write(b"[" * 200_000 + b"]" * 200_000 + b"\n"))


def deep_result():
    """A result nested deeper than any op's."""
    serve(lambda body: write(b'{"id":%d,"result":{"out":%s1%s}}\n' % (body["id"], b"[" * 300, b"]" * 300)))


def not_utf8():
    """Bytes of another encoding."""
    serve(lambda body: write(b'{"id":1,"result":{"out":"\xff\xfe"}}\n'))


def half_surrogate():
    """A string that cannot be written to any report."""
    serve(lambda body: write(b'{"id":%d,"rejected":{"reason":null,"detail":"\\ud800"}}\n' % body["id"]))


def nan_literal():
    """NaN without quotes."""
    serve(lambda body: write(b'{"id":%d,"result":{"out":NaN}}\n' % body["id"]))


def huge_integer():
    """An integer of 6,000 digits."""
    serve(lambda body: write(b'{"id":%d,"result":{"out":%s}}\n' % (body["id"], b"9" * 6000)))


def huge_float():
    """A number that overflows to infinity."""
    serve(lambda body: write(b'{"id":%d,"result":{"out":1e999}}\n' % body["id"]))


def twins():
    """An object that names one member twice."""
    serve(lambda body: write(b'{"id":%d,"id":%d,"result":{}}\n' % (body["id"], body["id"])))


def no_kind():
    """A reply that is neither result nor anything else."""
    serve(lambda body: say({"id": body["id"]}))


def two_kinds():
    """Result and rejection in one reply."""
    serve(lambda body: say({**result(body), "rejected": {"reason": None}}))


def extra_member():
    """A member that the protocol does not have."""
    serve(lambda body: say({**result(body), "seconds": 0.1}))


def recipe_back():
    """A recipe in a reply."""
    recipe = {"dtype": "float32", "shape": [1, 1], "recipe": {"name": "hash32-v1", "seed": 1}}
    serve(lambda body: say({"id": body["id"], "result": {"out": recipe}}))


def short_data():
    """Fewer numbers than the shape has."""
    serve(lambda body: say({"id": body["id"], "result": {"out": {**OUT, "data": [[]]}}}))


def bad_base64():
    """Text that is not base64."""
    serve(lambda body: say({"id": body["id"], "result": {"out": {**OUT, "data": "!!!!"}}}))


def unknown_dtype():
    """A dtype that does not exist."""
    serve(lambda body: say({"id": body["id"], "result": {"out": {**OUT, "dtype": "float8"}}}))


def huge_shape():
    """A shape of more elements than memory holds."""
    serve(lambda body: say({"id": body["id"], "result": {"out": {**OUT, "shape": [1 << 30] * 8, "data": ""}}}))


def odd_bool():
    """A bool of value 7 in base64."""
    serve(lambda body: say({"id": body["id"], "result": {"out": {"dtype": "bool", "shape": [3], "data": "BwEA"}}}))


def negative_frame():
    """A frame of length -5."""
    serve(lambda body: say({**result(body), "frames": [-5]}))


def endless_frames():
    """Frames of terabytes."""
    serve(lambda body: say({**result(body), "frames": [1 << 40]}))


def framed(body, announced, raw):
    tensor = {"dtype": "float32", "shape": [1, 1], "frame": 0}
    say({"id": body["id"], "result": {"out": tensor}, "frames": announced})
    write(raw)


def good_frame():
    """Nothing: the tensor comes in a frame."""
    serve(lambda body: framed(body, [4], b"\0\0\x80\x3f"))


def long_frame():
    """More bytes than announced."""
    serve(lambda body: framed(body, [4], b"\0\0\x80\x3f\0\0\x80\x3f"))


def short_frame():
    """Fewer bytes than announced, then silence."""
    serve(lambda body: framed(body, [4], b"\0\0\x80"))


def missing_frame():
    """A tensor in a frame that was not announced."""
    serve(lambda body: say({"id": body["id"], "result": {"out": {"dtype": "float32", "shape": [1, 1], "frame": 3}}}))


def idle_frame():
    """A frame that belongs to no tensor."""

    def bad(body):
        say({**result(body), "frames": [4]})
        write(b"\0\0\0\0")

    serve(bad)


def wrong_id():
    """An answer to a message that was never sent."""
    serve(lambda body: say({"id": body["id"] + 100, "result": {"out": OUT}}))


def textual_id():
    """The id as text."""
    serve(lambda body: say({"id": str(body["id"]), "result": {"out": OUT}}))


def opened_instead():
    """The answer to another kind of message."""
    serve(lambda body: say({"opened": {}}))


def twice():
    """Two answers at once."""
    serve(lambda body: write((json.dumps(result(body)) + "\n").encode() * 2))


def twice_late():
    """A second answer when the next message arrives."""
    owed = []

    def before():
        while owed:
            say(owed.pop())

    def bad(body):
        say(result(body))
        owed.append(result(body))

    serve(bad, before=before)


def twice_on_call():
    """A second answer when the next call arrives, not at its open, which the program does not ask for."""
    owed = []

    def before():
        while owed:
            say(owed.pop())

    def bad(body):
        say(result(body))
        owed.append(result(body))

    serve(bad, before=before, hello={**HELLO, "open": False})


def flood():
    """A line without end."""

    def bad(body):
        while True:
            write(b"x" * (1 << 20))

    serve(bad)


def silent():
    """No answer."""
    serve(lambda body: time.sleep(600))


def deaf():
    """Stops reading."""

    def bad(body):
        say(result(body))
        time.sleep(600)

    serve(bad)


def closes_stdout():
    """Closes its stdout and lives on."""

    def bad(body):
        os.close(1)
        time.sleep(600)

    serve(bad)


def exits():
    """Ends with a message on stderr."""

    def bad(body):
        print("out of memory", file=sys.stderr)
        os._exit(9)

    serve(bad)


def dies_once_for_all():
    """Ends, and does not start again."""
    marker = sys.argv[2]
    if os.path.exists(marker):
        sys.exit("licence expired")

    def bad(body):
        open(marker, "w").close()
        os._exit(1)

    serve(bad)


def never_closes():
    """Ignores close and the end of its stdin."""
    serve(lambda body: say(result(body)))
    time.sleep(600)


# ---- programs that do not get past hello -------------------------------------------------------------------------


def exits_at_hello():
    """Ends at once."""
    sys.exit("cannot find libengine.so")


def garbage_at_hello():
    """A banner on stdout."""
    write(b"Engine 1.0 ready\n")
    serve()


def silent_at_hello():
    """Waits."""
    time.sleep(600)


def other_protocol():
    """Chooses what was not offered."""
    serve(hello={**HELLO, "protocol": 2})


def other_edition():
    """Wants a corpus of another edition."""
    serve(hello={**HELLO, "edition": "1999.1"})


def nameless():
    """A hello that lacks the engine's name."""
    serve(hello={**HELLO, "engine": {"version": "1"}})


def answers_everything():
    """Returns a result for an op that it does not have."""
    for line in sys.stdin:
        body = json.loads(line)
        say({"hello": HELLO} if "hello" in body else {"opened": {}} if "open" in body else result(body))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
