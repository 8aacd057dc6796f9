"""The wheel: built, installed in an empty environment, and run from another folder."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (path,) = out.glob("kvassay-*.whl")
    return path


def test_the_wheel_holds_the_packages_and_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"kvassay", "kvassay_reference", "kvassay_kernels"}
    for needed in (
        "kvassay/schemas/case.json",
        "kvassay/fixtures/attention/oracle.py",
        "kvassay/fixtures/identity/base.json",
        "kvassay/spec/identity.requirements.json",
        "kvassay/schemas/identity/ops/identity.key.json",
        "kvassay/adapters/families.json",
        "kvassay/py.typed",
        "kvassay_kernels/csrc/attention.cu",
        "kvassay_kernels/csrc/common.cuh",
    ):
        assert needed in names
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_runs_the_suite_from_another_folder_without_torch(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    constraints = ROOT / "requirements" / "constraints.txt"
    install = [str(python), "-m", "pip", "install", "--quiet", "-c", str(constraints), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [str(home / "bin" / "kvassay"), "run", "--adapter", "reference", "--json-report", "report.json"]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((elsewhere / "report.json").read_text())
    assert report["engine"]["name"]
    probe = "import kvassay.corpus.data as d; print(d.root()); import importlib.util as u; print(u.find_spec('torch'))"
    seen = subprocess.run([str(python), "-c", probe], cwd=elsewhere, capture_output=True, text=True, check=True).stdout
    root, torch = seen.split()
    assert Path(root).is_relative_to(home)
    assert torch == "None"
