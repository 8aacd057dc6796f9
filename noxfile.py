"""Sessions of developers and CI (`nox -l` lists them); each has an environment of its own, pinned by requirements/."""

from __future__ import annotations

import os
import shlex
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.sessions = ["conformance", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
REQUIREMENTS = ROOT / "requirements"
CONSTRAINTS = REQUIREMENTS / "constraints.txt"
ENGINES = sorted(path.stem for path in REQUIREMENTS.glob("*.steps"))
"""Engines with a list of install steps, one pip argument line each, so that order and --no-deps can be said."""
BASE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]

FUZZED = ("lifecycle", "residency", "runtime")
"""Contracts that are fuzzed."""

# Builds done by pip must meet the same pins as the session.
os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")


def install(session: nox.Session, *what: str) -> None:
    session.install("-c", str(CONSTRAINTS), *what)


def steps(file: str) -> list[list[str]]:
    """Lines of a file below requirements/ as arguments: *.steps for pip, *.adapters for `kvassay run --adapter`."""
    lines = (REQUIREMENTS / file).read_text(encoding="utf-8").splitlines()
    return [shlex.split(line) for line in lines if line.strip() and not line.startswith("#")]


def install_engine(session: nox.Session, name: str) -> None:
    """Run the steps of requirements/<name>.steps, then the suite itself without touching the engine's pins."""
    for step in steps(f"{name}.steps"):
        session.install(*step, silent=False)
    session.install("-c", str(REQUIREMENTS / f"{name}.constraints.txt"), *BASE)
    session.install("--no-deps", "-e", ".")


def engine_of(adapter: str) -> str | None:
    """The engine whose requirements/<name>.adapters names the adapter."""
    return next((name for name in ENGINES if adapter in {words[0] for words in steps(f"{name}.adapters")}), None)


def option(session: nox.Session, name: str, default: str) -> str:
    """The value of an option among the session's own arguments."""
    for index, argument in enumerate(session.posargs):
        if argument == name and index + 1 < len(session.posargs):
            return session.posargs[index + 1]
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return default


@nox.session
def conformance(session: nox.Session) -> None:
    """Judge an engine: `nox -s conformance -- --adapter NAME ...` (the built-in reference when none is named)."""
    adapter = option(session, "--adapter", "reference")
    engine = engine_of(adapter)
    if engine:
        install_engine(session, engine)
    elif adapter == "reference-torch":
        install(session, "torch==2.13.0", "-e", ".")
    else:
        install(session, "-e", ".")
    named = [] if any(a.startswith("--adapter") for a in session.posargs) else ["--adapter", adapter]
    session.run("kvassay", "run", *named, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The project's own tests."""
    install(session, "-e", ".[dev,docs]")
    session.run("pytest", "-n", "2", *session.posargs)


@nox.session
def selftest(session: nox.Session) -> None:
    """Judge the suite: every seeded fault dies by its own case, no correct engine is blamed."""
    install(session, "-e", ".")
    session.run("kvassay", "selftest", "--output", "reports/kill-matrix.json", *session.posargs)


@nox.session(name="trace-faults")
def trace_faults(session: nox.Session) -> None:
    """Judge the trace checker: every fault of the movement contracts shows in the recorded trace of its own cases."""
    install(session, "-e", ".")
    session.run("kvassay", "trace", "selftest", *session.posargs)


@nox.session(name="fuzz-faults")
def fuzz_faults(session: nox.Session) -> None:
    """Fuzz every seeded fault and write what is found to docs/fuzz; fails for a fault that is missed."""
    install(session, "-e", ".[fuzz]")
    for contract in FUZZED:
        report = ROOT / "docs" / "fuzz" / f"{contract}.json"
        arguments = ["--faults", "--examples", "2000", "--json-report", str(report), *session.posargs]
        session.run("kvassay", "fuzz", "--contract", contract, *arguments)


@nox.session
def fixtures(session: nox.Session) -> None:
    """Derive all golden data and fail on drift; `-- --write` keeps what changed, `-- --fresh` derives from empty."""
    install(session, "-e", ".")
    arguments = [argument for argument in session.posargs if argument != "--write"]
    check = [] if "--write" in session.posargs else ["--check"]
    session.run("python", "-m", "kvassay.authoring", *check, *arguments)
    session.run("kvassay", "oracle", "--all")


@nox.session
def lint(session: nox.Session) -> None:
    """Style and types."""
    install(session, "-e", ".[dev]")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """The site, warnings as errors, into docs/_build/html."""
    install(session, "-e", ".[docs]")
    session.run("sphinx-build", "-W", "-n", "--keep-going", "-b", "html", "docs", "docs/_build/html", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Cost of the runner and of the reference, as ratios in one run."""
    install(session, "torch==2.13.0", "faiss-cpu==1.15.1", "-e", ".[dev]")
    session.run("python", "-m", "bench", *session.posargs)


@nox.session
def kernels(session: nox.Session) -> None:
    """Compile the kernels for three architectures, emulate and sanitise them, without a GPU; needs g++."""
    install(session, "-r", str(REQUIREMENTS / "kernels.txt"), "-e", ".", "hypothesis", "pytest", "pytest-xdist")
    more = {"KVASSAY_KERNELS_FULL": "1", "KVASSAY_EMULATOR_SCHEDULES": "0,1,3"}
    files = ["-o", "python_files=test_*.py check_*.py", "tests/kernels"]
    session.run("pytest", "-n", "2", *files, *session.posargs, env=more)
    session.run("kvassay", "run", "--adapter", "kernels-emulated")


@nox.session(name="bench-gpu")
def bench_gpu(session: nox.Session) -> None:
    """Measure the kernels on a GPU beside a plain copy, torch and FlashInfer; needs a CUDA 13 driver."""
    install(session, "-e", ".")
    session.install("-r", str(REQUIREMENTS / "bench-gpu.txt"))
    session.run("python", "-m", "bench.gpu", *session.posargs)


def _engine_session(name: str) -> None:
    @nox.session(name=f"engine-{name}")
    def judge_engine(session: nox.Session) -> None:
        install_engine(session, name)
        for adapter, *options in steps(f"{name}.adapters"):
            report = ROOT / "docs" / "engines" / f"{adapter}.json"
            arguments = ["--adapter", adapter, *options, "--json-report", str(report), *session.posargs]
            session.run("kvassay", "run", *arguments, success_codes=[0, 1])

    judge_engine.__doc__ = f"Judge {name} and write its reports to docs/engines."


for _name in ENGINES:
    _engine_session(_name)
