"""The software bill of materials of the wheel, CycloneDX 1.6 as JSON.

It is made of `requirements.lock` and `docs/licences.md` whenever a wheel is built, so that it cannot be older
than they are. The wheel contains none of these packages: they are what it is tested with.
"""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from typing import Any

# Where only setuptools is installed, as in a build, `packaging` is found after it.
import setuptools  # noqa: F401
from lock import LICENCES, LOCK, ROOT, normalised, pins
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

ALWAYS = "memplan"
"""What the lock calls memplan without extras."""


def sbom(seconds: int) -> str:
    """The bill as text, dated `seconds` after 1970 (UTC)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    licences = dict(re.findall(r"(?m)^\| (\S+) \| \S+ \| ([^|]+?) \|", LICENCES.read_text(encoding="utf-8")))
    locked = {
        version.partition("+")[0]: needed_by
        for version, (_, needed_by) in pins(LOCK.read_text(encoding="utf-8")).items()
    }
    packages = [package(pinned, needed_by, licences) for pinned, needed_by in sorted(locked.items())]
    this = component(project["name"], project["version"], project["license"])
    date = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": f"{date:%Y-%m-%dT%H:%M:%SZ}",
            "tools": {"components": [{"type": "application", "name": "memplan scripts/sbom.py"}]},
            "component": this,
        },
        "components": packages,
        "dependencies": [
            {"ref": this["bom-ref"], "dependsOn": [each["bom-ref"] for each in packages]},
            *({"ref": each["bom-ref"]} for each in packages),
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def package(pinned: str, needed_by: set[str], licences: dict[str, str]) -> dict[str, Any]:
    """The component of a pin, "numpy==2.4.6", with the extras that need it."""
    name, _, version = pinned.partition("==")
    found = component(normalised(name), version, licences[normalised(name)])
    found["scope"] = "required" if ALWAYS in needed_by else "optional"
    extras = sorted(needed_by - {ALWAYS})
    if extras:
        found["properties"] = [{"name": "memplan:extra", "value": extra} for extra in extras]
    return found


def component(name: str, version: str, licence: str) -> dict[str, Any]:
    """A package of PyPI as CycloneDX has it; a licence that is no SPDX expression stays in its own words."""
    purl = f"pkg:pypi/{name}@{version}"
    try:
        said: dict[str, Any] = {"expression": canonicalize_license_expression(licence)}
    except InvalidLicenseExpression:
        said = {"license": {"name": licence}}
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "licenses": [said],
    }
