"""What runs the action's steps as GitHub's runner does, and the few calls of GitHub's API that they make."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from memplan_engine.github_action.action_steps import run_step
from tests import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
NUMBER = 7
"""Of the pull request."""
PART = re.compile(r"\s*(\S+) (==|!=) '([^']*)'\s*")


class SmallGitHub(ThreadingHTTPServer):
    """Comments of one pull request, and the merge base of any two commits. `status` is what it answers to
    whoever wants to write, 0 for what GitHub would."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: list[dict[str, Any]] = []
        self.merge_base = ""
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()
        self.status = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: SmallGitHub

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = json.loads(self.rfile.read(length)) if length else {}
        self.server.asked.append(f"{self.command} {self.path.partition('?')[0]}")
        self.server.tokens.add(self.headers.get("Authorization"))
        status, answer = self._found(data)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def _found(self, data: dict[str, Any]) -> tuple[int, Any]:
        server, (path, _, query) = self.server, self.path.partition("?")
        comments = f"/repos/ann/shop/issues/{NUMBER}/comments"
        if server.status and self.command != "GET":
            return server.status, None
        if (self.command, path) == ("GET", comments):
            (page,) = re.findall(r"\bpage=(\d+)", query)
            return 200, server.comments[100 * (int(page) - 1) : 100 * int(page)]
        if (self.command, path) == ("POST", comments):
            server.comments.append({"id": len(server.comments) + 1, **data})
            return 201, {}
        if self.command == "PATCH" and path.startswith("/repos/ann/shop/issues/comments/"):
            server.comments[int(path.rpartition("/")[2]) - 1].update(data)
            return 200, {}
        if path.startswith("/repos/ann/shop/compare/") and server.merge_base:
            return 200, {"merge_base_commit": {"sha": server.merge_base}}
        return 404, None

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@dataclass
class Runner:
    """A job: `work` is the clone, `files` what the runner keeps of it. `in_shell`: each step in a shell
    of its own."""

    work: Path
    files: Path
    github: SmallGitHub
    event: dict[str, Any]
    in_shell: bool = False
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        return (self.files / "summary").read_text(encoding="utf-8")

    def run(self, *only: str, **inputs: str) -> Runner:
        """Run the steps `only`, by id or name, as in a job with `inputs`."""
        given = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        given |= {"token": "s3cret", "working-directory": str(self.work)}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        (self.files / "event.json").write_text(json.dumps(self.event))
        (self.files / "summary").write_text("")
        self.codes.clear()
        for step in STEPS:
            name = step.get("id", step["name"])
            if name in (only or ("base", "check", "Comment")) and self._wanted(step.get("if", ""), given):
                self._run_step(name, step, given)
        return self

    def _run_step(self, name: str, step: dict[str, Any], inputs: dict[str, str]) -> None:
        (self.files / "output").write_text("")
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.files),
            "PYTHONPATH": str(ROOT), "GIT_CONFIG_GLOBAL": os.devnull, "RUNNER_TEMP": str(self.files),
            "GITHUB_OUTPUT": str(self.files / "output"), "GITHUB_STEP_SUMMARY": str(self.files / "summary"),
            "GITHUB_EVENT_PATH": str(self.files / "event.json"), "GITHUB_REPOSITORY": "ann/shop",
            "GITHUB_API_URL": self.github.url, "GITHUB_ACTION_PATH": str(ROOT),
            **{key: self._filled(str(value), inputs) for key, value in step.get("env", {}).items()},
        }  # fmt: skip
        where = self._filled(step.get("working-directory", str(self.work)), inputs)
        run = self._in_shell if self.in_shell else self._here
        self.logs[name], self.codes[name] = run(step["run"], Path(where), environment)
        found = re.findall(r"(\S+)<<(\S+)\n(.*?)\n\2\n", (self.files / "output").read_text(), re.DOTALL)
        self.outputs[name] = {key: value for key, _, value in found}

    def _in_shell(self, text: str, where: Path, environment: dict[str, str]) -> tuple[str, int]:
        """As the runner does for `shell: bash`."""
        script = self.files / "script.sh"
        script.write_text(text)
        line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(line, cwd=where, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr, done.returncode

    def _here(self, text: str, where: Path, environment: dict[str, str]) -> tuple[str, int]:
        """In this process, which has everything imported."""
        program, name = text.rsplit(" ", 1)
        assert program == "python -m memplan_engine.github_action"
        with chdir(where), redirect_stdout(StringIO()) as said:
            code = run_step(name, environment)
        return said.getvalue(), code

    def _wanted(self, condition: str, inputs: dict[str, str]) -> bool:
        """Whether a step runs: after a failure those only that look whether the job was cancelled."""
        parts = [part.strip() for part in condition.removeprefix("${{").removesuffix("}}").split("&&")]
        if any(self.codes.values()) and "!cancelled()" not in parts:
            return False
        for part in parts:
            if match := PART.fullmatch(part):
                value = self._value(match[1], inputs)
                if (value == match[3]) != (match[2] == "=="):
                    return False
            else:
                assert part in ("", "!cancelled()"), part
        return True

    def _filled(self, text: str, inputs: dict[str, str]) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: self._value(match[1], inputs), text)

    def _value(self, name: str, inputs: dict[str, str]) -> str:
        match name.split("."):
            case ["inputs", key]:
                return inputs[key]
            case ["steps", step, "outputs", key]:
                return self.outputs.get(step, {}).get(key, "")
            case ["runner", "temp"]:
                return str(self.files)
        raise AssertionError(f"the action asks for {name}")
