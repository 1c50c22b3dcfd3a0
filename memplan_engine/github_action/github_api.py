"""The few calls of GitHub's REST API that the action makes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from memplan_engine.errors import MemplanError, one_line

SECONDS = 30
PAGE, MOST_PAGES = 100, 30


class ApiError(MemplanError):
    """GitHub refused, or did not answer; `status` is that of HTTP, 0 where there was no answer."""

    def __init__(self, what: str, status: int, said: str) -> None:
        self.status = status
        super().__init__(one_line(f"{what}: {f'HTTP {status}, ' if status else ''}{said}", 300))

    @property
    def refused(self) -> bool:
        """Whether the token does not suffice."""
        return self.status in (401, 403, 404)


@dataclass(frozen=True, slots=True)
class GitHub:
    """`repository` is "owner/name"; `token` is never shown."""

    repository: str
    token: str = field(default="", repr=False)
    url: str = "https://api.github.com"

    def merge_base(self, base: str, head: str) -> str:
        """The commit at which the two have parted; the clone need not have it. Raises ApiError."""
        told = self._ask("GET", f"compare/{quote(base, safe='')}...{quote(head, safe='')}?per_page=1")
        commit = (told.get("merge_base_commit") or {}).get("sha") if isinstance(told, dict) else None
        if not isinstance(commit, str):
            raise ApiError("comparing commits", 0, "no merge base was told")
        return commit

    def find_comment(self, number: int, beginning: str) -> dict[str, Any] | None:
        """The first comment on the pull request `number` that begins so. Raises ApiError."""
        for page in range(1, MOST_PAGES + 1):
            comments = self._ask("GET", f"issues/{number}/comments?per_page={PAGE}&page={page}")
            for comment in comments:
                if str(comment.get("body") or "").startswith(beginning):
                    return dict(comment)
            if len(comments) < PAGE:
                break
        return None

    def keep_comment(self, number: int, beginning: str, body: str) -> str:
        """Have one comment that begins so on the pull request, with `body`, which does: "created", "updated"
        or "unchanged". Raises ApiError."""
        found = self.find_comment(number, beginning)
        if found is None:
            self._ask("POST", f"issues/{number}/comments", {"body": body})
            return "created"
        if found["body"] == body:
            return "unchanged"
        self._ask("PATCH", f"issues/comments/{int(found['id'])}", {"body": body})
        return "updated"

    def _ask(self, method: str, path: str, data: object = None) -> Any:
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/repos/{quote(self.repository)}/{path}",
            method=method,
            data=None if data is None else json.dumps(data).encode(),
            headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"},
        )
        request.add_header("User-Agent", "memplan")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.token:
            # Not sent on to wherever an answer may lead.
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        what = f"{method} {path.partition('?')[0]}"
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise ApiError(what, error.code, str(error.reason)) from None
        except (OSError, ValueError) as error:
            raise ApiError(what, 0, str(error)) from None
