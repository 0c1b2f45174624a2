"""A question as a JSON document: its subject, its wording and its randomizer."""

from __future__ import annotations

from croupier.protocol.documents import document_of, fields_of
from croupier.protocol.names import JsonObject
from croupier.protocol.questions import Question

_TOO_LARGE = ("vector", "parameters")
"""Parts of a vector's task that are left out: megabytes of a model, which no person reads."""


def question_json(question: Question) -> JsonObject:
    """Returns a question with its wordings; "parameters" are the mechanism's."""
    mechanism = question.mechanism
    parameters = fields_of(mechanism)
    if mechanism.task is not None:
        parameters = {
            name: value for name, value in (parameters | fields_of(mechanism.task)).items() if name not in _TOO_LARGE
        }
    return {
        "question": question.name,
        "wordings": document_of(question.wordings),
        "randomizer": mechanism.kind,
        "parameters": parameters,
    }
