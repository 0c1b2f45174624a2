"""Cross tables and sums of categories as JSON documents, from a published result.

The numbers are computed by `analyzer.tabulation` from the shares, the budgets and the noise that the result states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from croupier.analyzer.base import tiers_of_reports
from croupier.analyzer.estimates import Fakes, Noised
from croupier.analyzer.noised_tiers import TierErrors
from croupier.analyzer.tabulation import CrossTable, ShareModel
from croupier.protocol.crossed import factor_names, factors
from croupier.protocol.documents import document_of
from croupier.protocol.histograms import values_of
from croupier.protocol.manifest import parse_terms
from croupier.protocol.mechanisms.krr import KaryResponse
from croupier.protocol.names import JsonObject
from croupier.protocol.shown import sanitize_for_display
from croupier.protocol.v1 import messages_pb2 as pb
from croupier.show.numbers import labels_of

_MOST_CELLS = 400
"""More cells take minutes: every pair of them has a covariance."""


def share_model(publication: pb.Publication, certificate: pb.Certificate) -> ShareModel:
    """Returns the shares of a published result with the data behind their errors.

    Raises:
        ValueError: the result is not one of categories, or is sealed.
    """
    if publication.sealed_result:
        raise ValueError(f"the result of {publication.round_id} is sealed to its collector; give --collector-key")
    terms = parse_terms(publication.round)
    mechanism, values = terms.question.mechanism, values_of(publication)
    if not isinstance(mechanism, KaryResponse) or not values:
        raise ValueError(
            f"round {publication.round_id} asks with {mechanism.kind}; sums and tables are of one choice of several"
        )
    tiers = [(tier.local_epsilon, tier.count) for tier in certificate.tiers]
    noised = Noised.of(certificate)
    scaled, _ = tiers_of_reports(tiers, publication.num_reports, noised)
    epsilons, counts = np.array(scaled, dtype=np.float64).T
    return ShareModel(
        mechanism,
        np.array([value.estimate for value in values]),
        np.array([value.projected for value in values]),
        epsilons,
        counts,
        publication.confidence_level,
        Fakes.of(terms, certificate),
        TierErrors.of(noised, tiers, publication.num_reports),
    )


def sum_of(model: ShareModel, categories: Sequence[str]) -> JsonObject:
    """Returns the share of the people with one of several answers.

    Raises:
        ValueError: an answer that the question does not have, or one that is named twice.
    """
    places = [model.mechanism.parse_value(category) for category in categories]
    names = [model.mechanism.categories[place] for place in places]
    return {"categories": names, "share": document_of(model.total(places).message())}


def cross_table(model: ShareModel, name: str) -> JsonObject:
    """Returns the table of a question that asks two as one: margins, shares within rows, differences and a test.

    "cells" are the nearest possible shares, and margins their sums. "within_rows" are the shares of the answers to the
    second question among people with each answer to the first; "differences" compare each row with the first one.

    Raises:
        ValueError: the question does not ask two as one, or has too many cells.
    """
    pair = factors(model.mechanism.categories)
    if pair is None:
        raise ValueError(f"the answers to {name} are not pairs such as 'yes × good'; a table is of two questions")
    rows, columns = pair
    if len(rows) * len(columns) > _MOST_CELLS:
        raise ValueError(f"the table has {len(rows) * len(columns)} cells; it must have at most {_MOST_CELLS}")
    table = CrossTable(model, len(rows), len(columns))
    test = table.independence()
    return {
        "questions": list(factor_names(name)),
        "rows": list(rows),
        "columns": list(columns),
        "cells": [[float(model.possible[i * len(columns) + j]) for j in range(len(columns))] for i in range(len(rows))],
        "row_shares": [document_of(table.row(place).message()) for place in range(len(rows))],
        "column_shares": [document_of(table.column(place).message()) for place in range(len(columns))],
        "within_rows": [
            [document_of(table.within(i, j).message()) for j in range(len(columns))] for i in range(len(rows))
        ],
        "differences": [
            {
                "rows": [rows[i], rows[0]],
                "column": columns[j],
                "difference": document_of(table.difference(j, i, 0).message()),
            }
            for i in range(1, len(rows))
            for j in range(len(columns))
        ],
        "independence": {"statistic": test.statistic, "degrees": test.degrees, "p_value": test.p_value},
    }


def has_table(result: JsonObject) -> bool:
    """Returns whether a published result is one of pairs of answers, with a cross table."""
    labels = labels_of(result)
    return bool(labels) and len(labels) <= _MOST_CELLS and factors(labels) is not None


def add_computed(
    result: JsonObject,
    publication: pb.Publication,
    certificate: pb.Certificate,
    sums: Sequence[Sequence[str]],
    *,
    table: bool,
) -> None:
    """Adds to a result the sums of these answers, if there are any, and its cross table if that is asked for.

    Raises:
        ValueError: as `share_model`, `sum_of` and `cross_table`.
    """
    if not sums and not table:
        return
    model = share_model(publication, certificate)
    if sums:
        result["sums"] = sanitize_for_display([sum_of(model, categories) for categories in sums])
    if table:
        asked = result["asked"]
        result["table"] = sanitize_for_display(cross_table(model, asked["question"] if asked else ""))
