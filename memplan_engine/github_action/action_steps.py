"""The steps of the action, each a function of the environment that gives its exit code."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from memplan_engine.checks.ceilings import CEILINGS, Ceilings, parse_ceiling
from memplan_engine.checks.checked_graphs import ModelSource
from memplan_engine.checks.checking import CheckRequest, check_models
from memplan_engine.checks.model_check import ModelCheck
from memplan_engine.cli.model_argument import is_factory
from memplan_engine.cli.output import as_text, put
from memplan_engine.diffing.regression import Limit, parse_limit
from memplan_engine.errors import InputError, MemplanError
from memplan_engine.github_action.github_api import ApiError, GitHub
from memplan_engine.github_action.workflow_files import (
    Environment,
    Event,
    add_summary,
    plain_output,
    read_event,
    set_outputs,
    temporary_folder,
    workflow_command,
)
from memplan_engine.history.git.git_commit import ask_git
from memplan_engine.reporters.checks.badges import check_folder, write_badges
from memplan_engine.reporters.checks.check_markdown import check_markdown
from memplan_engine.reporters.checks.check_tables import check_summary, check_tables
from memplan_engine.system import write_atomically

COMMENT, REPORT = "comment.md", "report.json"
SHORT = 12


def cache_key(environment: Environment) -> int:
    """Output `key`: what compiled kernels depend on."""
    from memplan_engine.kernels import sources_digest
    from memplan_engine.kernels.code_cache import machine_digest

    parts = (platform.system(), platform.machine(), machine_digest()[:16], sources_digest()[:16])
    set_outputs(environment, {"key": "-".join(("memplan-kernels", *parts))})
    return 0


def warm_up(environment: Environment) -> int:
    """Compile all kernels for the cache: one with only those of today's models would never be renewed."""
    from memplan_engine.warm_up import compile_kernels

    compile_kernels()
    return 0


def find_base(environment: Environment) -> int:
    """Output `commit`: what to compare with, "" for nothing; the clone has it afterwards.

    Raises
    ------
    MemplanError: of a pull request it cannot be found, or not fetched.
    """
    asked, event = environment.get("INPUT_BASE", "").strip(), read_event(environment)
    if asked.lower() == "none" or not (asked or event.base):
        commit = ""
    elif asked or not event.is_pull_request:
        commit = _fetched(asked or event.base)
    else:
        commit = _fetched(_merge_base(event, environment))
    set_outputs(environment, {"commit": commit})
    print(f"compared with {commit[:SHORT]}" if commit else "compared with nothing")
    return 0


def _merge_base(event: Event, environment: Environment) -> str:
    """Where the pull request, as it is checked out, has left its base."""
    with suppress(MemplanError):
        return ask_git(Path(), "merge-base", event.base, "HEAD")
    # A clone without history, as actions/checkout makes them: GitHub knows.
    head = ask_git(Path(), "rev-parse", "HEAD")
    try:
        return _github(event, environment).merge_base(event.base, head)
    except ApiError as error:
        ways = "check out with `fetch-depth: 0`, or give `base: none`"
        raise InputError("base", "the merge base", str(error), f"to find it; {ways}") from None


def _fetched(commit: str) -> str:
    """`commit`, which is fetched where the clone does not have it.

    Raises
    ------
    InputError: the repository has none of that name.
    """
    with suppress(MemplanError):
        return ask_git(Path(), "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    try:
        ask_git(Path(), "fetch", "--no-tags", "--depth=1", "origin", "--end-of-options", commit)
    except InputError:
        expected = (
            "a commit, branch or tag that can be fetched from origin; `base: none` compares with nothing"
        )
        raise InputError(
            "base", "", f"{commit!r}, which neither the clone nor origin has", expected
        ) from None
    return ask_git(Path(), "rev-parse", "--verify", "FETCH_HEAD^{commit}")


def check(environment: Environment) -> int:
    """Check the models: log, page of the run, text of the comment, outputs, badges. 1 where one fails."""
    request = _request(environment)
    if badges := environment.get("INPUT_BADGES", "").strip():
        check_folder(Path(badges))
    checks = check_models(request, Path())
    folder = temporary_folder(environment)
    compared = f"compared with {request.base[:SHORT]}" if request.base else ""
    markdown = check_markdown(checks, compared)
    with plain_output():
        put(as_text(check_tables(checks)))
    add_summary(environment, markdown)
    _write(folder / COMMENT, f"{_beginning(environment)}\n{markdown}")
    _write(folder / REPORT, json.dumps(check_summary(checks), indent=2))
    if badges:
        write_badges(checks, Path(badges))
    set_outputs(environment, {**_figures(checks), "comment": folder / COMMENT, "report": folder / REPORT})
    return 0 if all(each.passed for each in checks) else 1


def _request(environment: Environment) -> CheckRequest:
    """What the inputs ask for; raises InputError naming one that means nothing."""
    models = [line.strip() for line in environment.get("INPUT_MODELS", "").splitlines() if line.strip()]
    if not models:
        raise InputError("models", "", "nothing", "a graph's file or package.module:factory on each line")
    training = environment.get("INPUT_TRAINING", "").strip()
    if training not in ("", "step"):
        raise InputError("training", "", repr(training), "step, or nothing")
    limits = (
        parse_ceiling(environment.get(f"INPUT_MAX_{what.upper()}", "").strip() or None, f"max-{what}")
        for what in CEILINGS
    )
    base = environment.get("INPUT_BASE_COMMIT", "").strip()
    return CheckRequest(
        [ModelSource(each, is_factory(each, None), training == "step") for each in models],
        Ceilings(*limits),
        base,
        _limit(environment.get("INPUT_FAIL_ON_GROWTH", "").strip()) if base else None,
        environment.get("INPUT_STRATEGY", "").strip() or "auto",
    )


def _limit(given: str) -> Limit | None:
    if given.lower() in ("", "false"):
        return None
    return Limit() if given.lower() == "true" else parse_limit(given, "fail-on-growth")


def _figures(checks: tuple[ModelCheck, ...]) -> dict[str, object]:
    growth = [each.diff.arena_delta for each in checks if each.diff is not None]
    return {
        "passed": str(all(each.passed for each in checks)).lower(),
        "failed-models": sum(not each.passed for each in checks),
        "arena-bytes": max(each.figures.arena for each in checks),
        "growth-bytes": max(growth) if growth else "",
    }


def comment(environment: Environment) -> int:
    """Keep the comment on the pull request up to date. Where that is not allowed, as on one of a fork, the
    page of the run has to do: no failure."""
    event = read_event(environment)
    if not event.is_pull_request:
        return 0
    body = Path(environment["INPUT_COMMENT"]).read_text(encoding="utf-8")
    try:
        became = _github(event, environment).keep_comment(event.number, body.partition("\n")[0], body)
    except ApiError as error:
        kind, why = "warning", str(error)
        if error.refused:
            kind, why = "notice", "the token may not comment (a fork, or no `pull-requests: write`)"
        workflow_command(kind, f"{why}: see the summary of this run")
    else:
        print(f"comment {became}")
    return 0


def _beginning(environment: Environment) -> str:
    """The first line of the comment, by which it is found again; no page shows it."""
    given = environment.get("INPUT_COMMENT_ID", "").strip() or "memplan"
    name = "".join(letter for letter in given if letter.isalnum() or letter in " ._/:")
    return f"<!-- memplan check: {name} -->"


def _github(event: Event, environment: Environment) -> GitHub:
    url = environment.get("GITHUB_API_URL") or "https://api.github.com"
    return GitHub(event.repository, environment.get("INPUT_TOKEN", ""), url)


def _write(path: Path, text: str) -> None:
    write_atomically(path, f"{text}\n".encode("utf-8", "backslashreplace"))


STEPS: dict[str, Callable[[Environment], int]] = {
    "cache-key": cache_key,
    "warm-up": warm_up,
    "base": find_base,
    "check": check,
    "comment": comment,
}


def run_step(name: str, environment: Environment) -> int:
    """Run one of STEPS and give its exit code; what a user can cause becomes an annotation of the run."""
    try:
        if name not in STEPS:
            raise InputError("step", "", repr(name), f"one of {', '.join(STEPS)}")
        return STEPS[name](environment)
    except MemplanError as error:
        workflow_command("error", str(error))
        return error.exit_code
