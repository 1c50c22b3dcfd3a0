"""What is worked out once for all sessions is of the document that it is asked of: what another one
left behind when it went may not be shown, for it may be another visitor's."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import documents
from memplan_dashboard.session.documents import Document
from memplan_dashboard.session.plan_facts import OF_DOCUMENT

from memplan_engine import make_problem


def document():
    """One that nothing else holds; the next may lie where it lay."""
    problem = make_problem([0, 1], [4, 3], [10, 20])
    return Document("upload:a", "a", problem, documents.AS_IT_IS, problem)


def test_no_document_is_taken_for_one_that_is_gone():
    """By `id` a third of these would be told apart."""
    assert len({OF_DOCUMENT[Document](document()) for _ in range(5000)}) == 5000
