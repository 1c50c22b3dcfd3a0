"""The process in which a factory is captured: what it imports is that of one folder, first of all."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from memplan_engine.errors import InputError
from memplan_engine.formats.memplan_json.json_file import write_json
from memplan_engine.graph import Graph
from memplan_engine.runtime.process_answer import leaving_errors
from memplan_engine.runtime.scripts.factory_capture import GRAPH, REQUEST
from memplan_engine.torch_capture.capture_module import capture
from memplan_engine.torch_capture.torch_factory import capture_factory, capture_training_factory

# What an export imports on its way takes longer than a small model: once for all that are forked from here.
capture(torch.nn.Linear(1, 1), (torch.zeros(1),))
INSTALLED = "site-packages", "dist-packages"


def main(folder: Path) -> None:
    """Capture the factory that `folder` asks for, and leave there its graph or what is wrong with it."""
    request: dict[str, Any] = json.loads((folder / REQUEST).read_text())
    top = Path(request["top"])
    # Where it was asked for may be the same project at another commit.
    sys.path[:] = [place for place in sys.path if place != str(Path.cwd())]
    os.chdir(top)
    sys.path[:0] = [str(top / place) for place in request["places"]]
    # Files of the next commit may have the sizes and the times of these.
    sys.dont_write_bytecode = True
    with leaving_errors(folder):
        graph = _captured(request)
        _check_origin(request, top)
        write_json(graph, folder / GRAPH)


def _captured(request: dict[str, Any]) -> Graph:
    if request["training"]:
        return capture_training_factory(request["factory"], **request["options"])
    return capture_factory(request["factory"], **request["options"])


def _check_origin(request: dict[str, Any], top: Path) -> None:
    """Raise InputError where the model is not made of the files that it is to be made of."""
    factory, elsewhere = f"factory {request['factory']}", request["elsewhere"]
    if elsewhere is None:
        return
    files = [
        Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))
    ]
    own = [file for file in files if not set(INSTALLED) & set(file.parts)]
    expected = "modules of the commit: --path names the folder in the repository that they are imported from"
    for file in own:
        if file.is_relative_to(elsewhere) and not file.is_relative_to(top):
            raise InputError(factory, "", f"{file}, which is no file of the commit", expected)
    given = [top / place for place in request["given"]]
    if not any(file.is_relative_to(top) and file not in given for file in own):
        raise InputError(factory, "", "no module that is a file of the commit", expected)
