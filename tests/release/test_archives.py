"""The archives of a commit are the same bytes whoever builds them; the wheel says what it is used with."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

BACKEND = "scripts/build_backend.py", "scripts/sbom.py", "scripts/lock.py"
READ = "requirements.lock", "docs/licences.md", "MANIFEST.in"
BUILD = """
import build_backend
print(build_backend.build_sdist("dist"), build_backend.build_wheel("dist"), sep="\\n")
"""
DATE = 1_700_000_000


def project(folder: Path) -> Path:
    """A package of two files, in `folder`, that is built as memplan is."""
    for name in (*BACKEND, *READ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    head = (ROOT / "pyproject.toml").read_text().partition("[project]")[0]
    (folder / "pyproject.toml").write_text(
        f'{head}[project]\nname = "memplan"\nversion = "0.1"\nlicense = "Apache-2.0"\n'
        '[tool.setuptools]\npackages = ["one"]\n'
    )
    (folder / "one").mkdir()
    (folder / "one" / "__init__.py").write_text("")
    (folder / "one" / "run.py").write_text("print(1)\n")
    return folder


def built(folder: Path, umask: int = 0o022, **environment: str) -> dict[str, bytes]:
    """The archives of what lies in `folder`: name → bytes."""
    umask = os.umask(umask)
    try:
        subprocess.run(
            [sys.executable, "-c", BUILD], cwd=folder, check=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": "scripts", **environment},
        )  # fmt: skip
    finally:
        os.umask(umask)
    return {path.name: path.read_bytes() for path in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = project(tmp_path_factory.mktemp("first"))
    return built(folder, SOURCE_DATE_EPOCH=str(DATE))


def unpacked(archives: dict[str, bytes], folder: Path) -> Path:
    for name, content in archives.items():
        (folder / name).write_bytes(content)
    with tarfile.open(folder / "memplan-0.1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "memplan-0.1"


def test_archives_built_elsewhere_with_other_modes_and_dates_are_the_same_bytes(
    archives: dict[str, bytes], tmp_path: Path
) -> None:
    folder = project(tmp_path / "a folder")
    (folder / "memplan.egg-info").mkdir()
    (folder / "memplan.egg-info" / "SOURCES.txt").write_text("one/stale.txt\n")
    (folder / "one" / "stale.txt").write_text("of an earlier version")
    (folder / "one" / "run.py").chmod(0o600)
    os.utime(folder / "one" / "run.py", (1, 1))
    again = built(folder, 0o077, SOURCE_DATE_EPOCH=str(DATE), TZ="Asia/Tokyo", LC_ALL="C")
    assert sorted(archives) == ["memplan-0.1-py3-none-any.whl", "memplan-0.1.tar.gz"]
    assert {name: hashlib.sha256(content).hexdigest() for name, content in again.items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in archives.items()
    }


def test_what_is_unpacked_builds_the_same_without_being_told_the_date(
    archives: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert built(unpacked(archives, tmp_path)) == archives


def test_every_entry_has_the_date_of_the_build_and_no_owner(
    archives: dict[str, bytes], tmp_path: Path
) -> None:
    unpacked(archives, tmp_path)
    with tarfile.open(tmp_path / "memplan-0.1.tar.gz") as archive:
        members = archive.getmembers()
    assert {(each.mtime, each.uid, each.gid, each.uname) for each in members} == {(DATE, 0, 0, "")}
    assert {each.mode for each in members} == {0o755, 0o644}
    assert [each.name for each in members] == sorted(each.name for each in members)
    with zipfile.ZipFile(tmp_path / "memplan-0.1-py3-none-any.whl") as wheel:
        entries = wheel.infolist()
        assert wheel.testzip() is None
    assert {each.date_time for each in entries} == {(2023, 11, 14, 22, 13, 20)}
    assert {each.external_attr >> 16 for each in entries} == {0o100644}
    assert entries[-1].filename.endswith("/RECORD")


def test_the_date_is_that_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path)
    git = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    dates = {"GIT_COMMITTER_DATE": f"{DATE - 5} +0000", "GIT_AUTHOR_DATE": "1500000000 +0000"}
    line = [*git, "commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(line, check=True, env={**os.environ, **dates})
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    printed = subprocess.run(
        [sys.executable, "-c", "import build_backend; print(build_backend.source_date())"],
        cwd=folder, check=True, capture_output=True, text=True, env={**environment, "PYTHONPATH": "scripts"},
    ).stdout  # fmt: skip
    assert int(printed) == DATE - 5


def test_the_bill_of_materials_in_the_wheel_is_what_is_locked(
    archives: dict[str, bytes], tmp_path: Path
) -> None:
    """Held against the lock as a stranger reads it, line by line."""
    unpacked(archives, tmp_path)
    with zipfile.ZipFile(tmp_path / "memplan-0.1-py3-none-any.whl") as wheel:
        bill = json.loads(wheel.read("memplan-0.1.dist-info/sboms/memplan.cdx.json"))
        recorded = wheel.read("memplan-0.1.dist-info/RECORD").decode()
    assert "memplan-0.1.dist-info/sboms/memplan.cdx.json,sha256=" in recorded
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/memplan@0.1"
    pinned = re.findall(r"(?m)^(\w\S*)==([^\s+]+)", (ROOT / "requirements.lock").read_text())
    assert {(each["name"], each["version"]) for each in bill["components"]} == {
        (re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in pinned
    }
    components = {each["name"]: each for each in bill["components"]}
    assert components["numpy"]["scope"] == "required"
    assert components["torch"]["scope"] == "optional"
    assert {"name": "memplan:extra", "value": "torch"} in components["torch"]["properties"]
    assert components["alembic"]["licenses"] == [{"expression": "MIT"}]
    assert components["altair"]["licenses"] == [{"license": {"name": "BSD License"}}]
    refs = {each["bom-ref"] for each in bill["components"]}
    assert len(refs) == len(bill["components"])
    assert {each["ref"] for each in bill["dependencies"]} == refs | {"pkg:pypi/memplan@0.1"}


def test_each_extra_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import check_extras

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(check_extras.COMMANDS) == set(extras) - {"all"} | {"memplan"}
    brought = re.findall(r"\[(.*)\]", extras["all"][0])[0].split(",")
    assert set(check_extras.ALL) == set(brought)
    (tried,) = re.findall(r"(?m)^RELEASE_EXTRAS \?= (.*)$", (ROOT / "Makefile").read_text())
    assert set(tried.split()) == set(extras)


def test_what_is_tried_of_an_extra_fails_where_it_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import check_extras

    programs = Path(sys.executable).parent
    check_extras.use("figures", programs, tmp_path)
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(check_extras.COMMANDS, "onnx", "memplan peak some.onnx\necho and on")
    with pytest.raises(subprocess.CalledProcessError):
        check_extras.use("onnx", programs, tmp_path)
    said = capsys.readouterr().err
    assert "some.onnx" in said
    assert "and on" not in said


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_extra_works_outside_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """memplan without extras is tried by `make wheel`."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import check_extras

    line = [sys.executable, "-c", f"import build_backend; build_backend.build_wheel({str(tmp_path)!r})"]
    subprocess.run(line, cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": "scripts"})
    (wheel,) = tmp_path.glob("*.whl")
    assert check_extras.main(str(wheel), "onnx") == 0
