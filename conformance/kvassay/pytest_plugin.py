"""pytest plugin: one test item per case, so that ``-k``, ``--lf``, ``-n`` and ``--junitxml`` work as people expect.

    pytest --kvassay-adapter my_engine.kvassay:Adapter -n 4 -k merge
    pytest --kvassay-adapter my_engine.kvassay:Adapter kvassay::attention/merge/two-empty-partitions

The cases need no test file. Without paths on the command line nothing else is collected; with paths, the cases come in
addition to the tests found there. Without ``--kvassay-adapter`` the plugin does nothing and imports nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .core.model import Case, Result
    from .corpus import Corpus
    from .runner import Session
    from .waivers import Waivers

ROOT = "kvassay"
PREFIX = f"{ROOT}::"
OPTIONS = {
    "profile": ("PROFILE", "Only cases of this profile; may be repeated."),
    "contract": ("CONTRACT", "Only cases of this contract; may be repeated."),
    "case": ("ID", "Only this case, or a glob; may be repeated."),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the group ``kvassay``."""
    group = parser.getgroup("kvassay", "kvassay: conformance of an engine that keeps K/V caches, one item per case")
    group.addoption(
        "--kvassay-adapter",
        metavar="NAME",
        help="Judge the engine behind this adapter: a built-in name, module:Class, an entry point, or cmd:PROGRAM.",
    )
    for name, (metavar, text) in OPTIONS.items():
        group.addoption(f"--kvassay-{name}", action="append", default=[], metavar=metavar, help=text)
    group.addoption("--kvassay-strict", action="store_true", help="Failed SHOULD cases fail instead of xfail.")
    group.addoption("--kvassay-waivers", metavar="FILE", help="Known deviations, as TOML.")
    group.addoption("--kvassay-python", metavar="PATH", help="Interpreter of the adapter, where it is not this one.")
    group.addoption("--kvassay-in-process", action="store_true", help="Call the adapter in the pytest process.")
    group.addoption("--kvassay-timeout-scale", type=float, default=1.0, metavar="X", help="Multiply each deadline.")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take pasted case ids out of the arguments, which pytest would look for on the disk."""
    if not config.getoption("kvassay_adapter"):
        return
    named = [argument for argument in config.args if argument.startswith(PREFIX)]
    config.option.kvassay_case += [argument.removeprefix(PREFIX) for argument in named]
    explicit = config.args_source is pytest.Config.ArgsSource.ARGS
    config.args[:] = [argument for argument in config.args if argument not in named] if explicit else []
    config.pluginmanager.register(Run(config), "kvassay-run")


class Run:
    """One pytest run of one adapter; in a distributed run each worker process has its own engine."""

    def __init__(self, config: pytest.Config) -> None:
        from .corpus import CorpusError, load
        from .waivers import load as load_waivers

        self.options = config.option
        try:
            self.corpus: Corpus = load()
            self.cases: Sequence[Case] = self.corpus.select(
                **{name: getattr(self.options, f"kvassay_{name}") for name in OPTIONS}
            )
            path = self.options.kvassay_waivers
            self.waivers: Waivers = load_waivers(_from_invocation(config, path)) if path else ()
        except CorpusError as problem:
            raise pytest.UsageError(f"kvassay: {problem}") from None
        self._session: Session | None = None
        self._broken: str | None = None

    def pytest_report_header(self) -> str:
        """What is judged by what."""
        corpus = f"edition {self.corpus.edition}, {self.corpus.digest[:12]}"
        return f"kvassay: adapter {self.options.kvassay_adapter}, {len(self.cases)} cases of corpus {corpus}"

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Start the engine before anything is collected: an adapter that cannot start is an error of usage.

        A distributed run sees so too, in the process that hands out the cases, which then lets its engine go.
        """
        from .adapters.errors import AdapterError

        if self.options.collectonly or hasattr(session.config, "workerinput"):
            return
        try:
            own = self.session()
        except AdapterError as problem:
            raise pytest.UsageError(f"kvassay: the adapter could not start: {problem.message}") from None
        if session.config.pluginmanager.hasplugin("dsession"):
            own.engine.close()
            self._session = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the cases to whatever was collected."""
        collector = CaseCollector.from_parent(session, name=ROOT, nodeid=ROOT, run=self)
        items.extend(session.genitems(collector))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the engine; a second answer to a case whose verdict was final fails the run."""
        if self._session is not None:
            self._session.finish()
            if self._session.late and not session.exitstatus:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self._session.engine.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What is wrong with the run itself."""
        for line in self._session.late if self._session is not None else ():
            terminalreporter.write_line(f"kvassay: {line}", red=True)

    @property
    def reach(self) -> dict[str, Any]:
        """How the engine is reached, in the words of ``kvassay run``."""
        names = ("adapter", "python", "in_process", "timeout_scale")
        return {name: getattr(self.options, f"kvassay_{name}") for name in names}

    def session(self) -> Session:
        """The engine of this process under judgement, started when first asked for; raises :class:`AdapterError`."""
        from .adapters.errors import AdapterError
        from .cli.run import session

        if self._broken is not None:
            raise AdapterError(self._broken)
        if self._session is None:
            try:
                strict = self.options.kvassay_strict
                self._session = session(self.reach, self.corpus, self.waivers, strict=strict)
            except AdapterError as problem:
                self._broken = problem.message
                raise
        return self._session

    def judge(self, case: Case) -> Result:
        """The verdict on one case, after the waivers, settled at once: pytest reports no item later."""
        session = self.session()
        settled = (*session.judge(case), *session.finish())
        return settled[-1]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Skips of cases are told without the line of this file that skipped them."""
        report = yield
        if isinstance(item, CaseItem) and report.skipped and isinstance(report.longrepr, tuple):
            report.longrepr = (ROOT, None, report.longrepr[2])  # type: ignore[assignment]
        return report


class CaseCollector(pytest.Collector):
    """The node above the cases; it stands for no file."""

    run: Run

    def __init__(self, *, run: Run, **more: Any) -> None:
        super().__init__(**more)
        self.run = run

    def collect(self) -> Iterator[pytest.Item]:
        """One item per case, and one for the waivers themselves."""
        for case in self.run.cases:
            yield CaseItem.from_parent(self, name=case.id, case=case)
        if self.run.waivers:
            yield WaiversItem.from_parent(self, name="waivers")


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, **more: Any) -> None:
        super().__init__(**more)
        self.case = case
        self.extra_keyword_matches.update((case.contract, case.profile, case.kind.value, *case.requirements))

    @property
    def owner(self) -> Run:
        """The run that this item belongs to."""
        assert isinstance(self.parent, CaseCollector)
        return self.parent.run

    def runtest(self) -> None:
        """Judge the case and say so in pytest's words."""
        from .adapters.errors import AdapterError
        from .cli.run import repeat_command
        from .reports.document import result

        try:
            verdict = self.owner.judge(self.case)
        except AdapterError as problem:
            stop = f"kvassay: the adapter could not start: {problem.message}"
            self.session.shouldfail = stop
            raise Deviation(stop) from None
        run = self.owner
        row = result(verdict, run.corpus, repeat_command(run.reach), strict=run.options.kvassay_strict)
        self.user_properties.append(("kvassay_verdict", row["verdict"]))
        if row["fails"]:
            raise Deviation(self._told(row))
        _pass_over(row)

    def _told(self, row: dict[str, Any]) -> str:
        from .reports.document import requirements
        from .reports.evidence import as_text, evidence

        texts = requirements(self.owner.corpus, self.case.requirements)
        return f"{row['verdict']}: {row['case']}\n{as_text(evidence(row, texts))}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The evidence alone; a traceback through the judge would say nothing of the engine."""
        if isinstance(excinfo.value, Deviation):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """How reports name the item."""
        return self.path, None, self.nodeid


class WaiversItem(pytest.Item):
    """The waivers themselves: none has expired, each matches a case."""

    def runtest(self) -> None:
        """Fail with one line for each waiver at fault."""
        from .waivers import problems

        run: Run = self.parent.run  # type: ignore[union-attr]
        known = [case.id for case in run.corpus.cases]
        found = problems(run.waivers, datetime.date.today(), known, ran=known, selected=())
        if found:
            raise Deviation("\n".join(found))

    repr_failure = CaseItem.repr_failure
    reportinfo = CaseItem.reportinfo


class Deviation(Exception):
    """The engine deviates; the message is the whole evidence."""


def _pass_over(row: dict[str, Any]) -> None:
    """Skip or xfail what is neither a pass nor a failure."""
    from .reports.evidence import headline

    verdict = row["verdict"]
    if verdict == "not-applicable":
        pytest.skip(f"not applicable: {headline(row)}")
    if verdict == "waived":
        pytest.xfail(f"waived {row['waived']}: {headline(row)}")
    if verdict != "pass":
        why = "provisional" if row["status"] == "provisional" else "SHOULD"
        pytest.xfail(f"{why}, {verdict}: {headline(row)}")


def _from_invocation(config: pytest.Config, path: str) -> Path:
    return config.invocation_params.dir / path
