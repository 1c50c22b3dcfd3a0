"""The action as a runner runs it: each step's own shell, in a clean folder, with a small GitHub beside it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from memplan_engine.files import write
from tests import ROOT
from tests.github_action.job_runner import ACTION, NUMBER, STEPS, Runner, SmallGitHub
from tests.support.chains import chain
from tests.support.repositories import git

MERGED = "refs/pull/7/merge"


@pytest.fixture
def github() -> Iterator[SmallGitHub]:
    server = SmallGitHub()
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def runner(tmp_path: Path, github: SmallGitHub) -> Runner:
    """A pull request as actions/checkout has it: the merge commit alone, without history. The branch has
    grown a model from 5 to 6 KiB; its base has gone on since."""
    origin, work, files = (tmp_path / name for name in ("origin", "work", "files"))
    for folder in (origin, work, files):
        folder.mkdir()
    git(origin, "init", "-q")
    write(chain(1024, 3072, 2048), origin / "a.json")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "first")
    git(origin, "checkout", "-qb", "wider")
    write(chain(1024, 3072, 3072), origin / "a.json")
    git(origin, "commit", "-qam", "wider")
    git(origin, "checkout", "-q", "main")
    (origin / "notes.txt").write_text("later\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "later")
    github.merge_base = git(origin, "rev-parse", "HEAD")
    git(origin, "checkout", "-q", "--detach")
    git(origin, "merge", "-q", "--no-ff", "-m", "merged", "wider")
    git(origin, "update-ref", MERGED, "HEAD")
    git(origin, "checkout", "-q", "main")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(work, "init", "-q")
    git(work, "remote", "add", "origin", origin.as_uri())
    git(work, "fetch", "-q", "--depth=1", "origin", MERGED)
    git(work, "checkout", "-q", "--detach", "FETCH_HEAD")
    event = {"pull_request": {"number": NUMBER, "base": {"sha": github.merge_base}}}
    return Runner(work, files, github, event)


@pytest.mark.parametrize("in_shell", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_pull_request_is_compared_with_its_merge_base_and_has_one_comment(
    runner: Runner, in_shell: bool
) -> None:
    github, runner.in_shell = runner.github, in_shell
    github.comments += [{"id": each + 1, "body": f"<!-- other --> {each}"} for each in range(100)]
    runner.run(models="a.json\n", fail_on_growth="true", max_arena="1MiB")
    assert runner.codes == {"base": 0, "check": 1, "Comment": 0}
    assert runner.outputs["base"]["commit"] == github.merge_base
    outputs = runner.outputs["check"]
    assert (outputs["passed"], outputs["failed-models"]) == ("false", "1")
    assert (outputs["arena-bytes"], outputs["growth-bytes"]) == ("6144", "1024")
    assert json.loads(Path(outputs["report"]).read_text())["passed"] is False

    (comment,) = github.comments[100:]
    marker, _, rest = comment["body"].partition("\n")
    assert marker == "<!-- memplan check: memplan -->"
    assert rest.strip() == runner.summary.strip()
    assert "| <code>a.json</code> | 6 KiB | 6 KiB | +1 KiB (+20.0 %) | 🔴 grew |" in rest
    assert f"compared with {github.merge_base[:12]}" in rest
    assert github.tokens == {"Bearer s3cret"}
    assert "s3cret" not in "".join([*runner.logs.values(), rest])

    runner.run(models="a.json", fail_on_growth="false", max_arena="1MiB")
    assert runner.codes == {"base": 0, "check": 0, "Comment": 0}
    assert len(github.comments) == 101
    assert "| 🟢 fits |" in github.comments[100]["body"]
    runner.run(models="a.json", max_arena="1MiB")
    assert "comment unchanged" in runner.logs["Comment"]
    runner.run(models="a.json", comment_id="another -->")
    assert github.comments[101]["body"].startswith("<!-- memplan check: another  -->\n")
    runner.run(models="a.json", comment="false")
    assert runner.codes == {"base": 0, "check": 0}


def test_a_clone_with_history_asks_nobody(runner: Runner) -> None:
    git(runner.work, "fetch", "-q", "--unshallow", "origin", MERGED, "main")
    expected, runner.github.merge_base = runner.github.merge_base, ""
    runner.run("base")
    assert runner.outputs["base"]["commit"] == expected
    assert runner.github.asked == []


@pytest.mark.parametrize(
    ("event", "base", "commit"),
    [
        ({"before": "TIP"}, "", "TIP"),
        ({"before": "0" * 40}, "", ""),
        ({}, "", ""),
        ({"pull_request": {"number": NUMBER, "base": {"sha": "TIP"}}}, "none", ""),
        ({}, "main", "TIP"),
    ],
)
def test_other_events_have_another_base_or_none(
    runner: Runner, event: dict[str, Any], base: str, commit: str
) -> None:
    tip = runner.github.merge_base
    runner.event = json.loads(json.dumps(event).replace("TIP", tip))
    runner.run(models="a.json", fail_on_growth="true", base=base)
    assert runner.outputs["base"]["commit"] == commit.replace("TIP", tip)
    # Grown by 1 KiB wherever there is something to compare with.
    assert runner.codes["check"] == bool(commit)
    assert len(runner.github.comments) == ("pull_request" in event)


def test_a_base_that_cannot_be_captured_is_an_error_where_growth_is_asked_for(runner: Runner) -> None:
    origin = runner.work.parent / "origin"
    (origin / "a.json").write_text("{")
    git(origin, "commit", "-qam", "damaged")
    runner.run(models="a.json", fail_on_growth="1%", base="main")
    assert runner.codes == {"base": 0, "check": 2}
    (line,) = runner.logs["check"].splitlines()
    assert line.startswith("::error title=memplan::a.json: no graph of it at ")
    runner.run(models="a.json", base="main")
    assert runner.codes["check"] == 0


def test_a_merge_base_that_is_not_found_is_an_error_with_a_way_out(runner: Runner) -> None:
    runner.github.merge_base = ""
    git(runner.work, "reflog", "expire", "--expire=now", "--all")
    runner.run(models="a.json")
    assert runner.codes == {"base": 2}
    (line,) = runner.logs["base"].splitlines()
    assert line.startswith("::error title=memplan::base: the merge base: found GET compare/")
    assert "HTTP 404" in line
    assert "check out with `fetch-depth: 0`, or give `base: none`" in line


def test_a_base_that_nobody_has_is_an_error_with_a_way_out(runner: Runner) -> None:
    runner.run(models="a.json", base="nowhere")
    assert runner.codes == {"base": 2}
    (line,) = runner.logs["base"].splitlines()
    assert line.startswith(
        "::error title=memplan::base: found 'nowhere', which neither the clone nor origin has"
    )
    assert "`base: none`" in line


@pytest.mark.parametrize(("status", "kind"), [(403, "notice"), (500, "warning")])
def test_who_may_not_comment_has_the_summary(runner: Runner, status: int, kind: str) -> None:
    runner.github.status = status
    runner.run(models="a.json")
    assert runner.codes == {"base": 0, "check": 0, "Comment": 0}
    assert runner.logs["Comment"].startswith(f"::{kind} title=memplan::")
    assert "see the summary of this run" in runner.logs["Comment"]
    assert "### Memory: 1 model" in runner.summary


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"models": " \n"}, "models: found nothing, expected a graph's file"),
        ({"models": "a.json", "max_arena": "5KuB"}, "max-arena: found '5KuB', expected bytes below 2^63"),
        ({"models": "a.json", "fail_on_growth": "yes"}, "fail-on-growth: found 'yes', expected a share"),
        ({"models": "a.json", "training": "joint"}, "training: found 'joint', expected step, or nothing"),
        ({"models": "nosuch.json"}, "nosuch.json: no such file"),
        (
            {"models": "nosuch.json", "badges": "a.json/badges"},
            "a.json, which is no folder, expected a folder",
        ),
    ],
)
def test_inputs_that_mean_nothing_are_one_annotation(
    runner: Runner, inputs: dict[str, str], told: str
) -> None:
    runner.run(**inputs)
    assert runner.codes == {"base": 0, "check": 2}
    (line,) = runner.logs["check"].splitlines()
    assert line.startswith("::error title=memplan::")
    assert told in line


@pytest.mark.slow
def test_inputs_are_no_shell_and_names_are_no_commands(runner: Runner) -> None:
    runner.in_shell = True
    evil = "$(touch pwned)`touch pwned`;touch pwned.json"
    write(chain(8, 8), runner.work / "::error::no.json")
    runner.run(models=f"{evil}\n::error::no.json", base="none", comment_id=evil, badges=evil)
    assert runner.codes["check"] == 2
    runner.run(models="::error::no.json", base="none")
    first, *_, last = runner.logs["check"].splitlines()
    token = first.removeprefix("::stop-commands::")
    assert len(token) == 32
    assert last == f"::{token}::"
    assert list(runner.work.glob("*pwned*")) == []


def test_the_kernels_have_one_key_and_memplan_is_installed_from_the_action(
    runner: Runner, tmp_path: Path
) -> None:
    key = runner.run("kernels").outputs["kernels"]["key"]
    assert re.fullmatch(r"memplan-kernels-Linux-\w+-[0-9a-f]{16}-[0-9a-f]{16}", key)
    assert runner.run("kernels").outputs["kernels"]["key"] == key
    said = tmp_path / "said"
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{said}"\n')
    fake.chmod(0o755)
    install, warm = (
        next(step for step in STEPS if step["name"] == name)
        for name in ("Install memplan", "Compile the kernels")
    )
    for extras, last in (("torch", f"{ROOT}[torch]"), ("", str(ROOT))):
        environment = {
            "PATH": f"{fake.parent}:/usr/bin:/bin",
            "GITHUB_ACTION_PATH": str(ROOT),
            "EXTRAS": extras,
        }
        subprocess.run(["bash", "-eo", "pipefail", "-c", install["run"]], env=environment, check=True)
        assert said.read_text().splitlines()[-1] == last
    assert warm["env"]["NUMBA_CACHE_DIR"] == "${{ runner.temp }}/memplan-kernels"
    assert warm["run"].endswith("github_action warm-up")


def test_the_action_is_pinned_and_hands_inputs_over_in_the_environment() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for step in STEPS:
        assert "${{" not in step.get("run", "")
        assert re.fullmatch(r"\S+@[0-9a-f]{40}", step.get("uses", f"a@{'0' * 40}"))
        assert ("uses" in step) != (step.get("shell") == "bash")
    check = next(step for step in STEPS if step.get("id") == "check")
    # The models' own code runs there.
    assert not [name for name in check["env"] if "TOKEN" in name]
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert set(re.findall(r"steps\.check\.outputs\.([\w-]+)", text)) == {*ACTION["outputs"], "comment"}
