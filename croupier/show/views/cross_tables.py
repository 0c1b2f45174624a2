"""Tables of two questions that were asked as one, and sums of shares."""

from __future__ import annotations

from typing import TypedDict


class ShareView(TypedDict):
    """A share, or a difference of two, computed from the shares of a result."""

    estimate: float
    projected: float
    standard_error: float
    confidence_interval: list[float]
    population_interval: list[float]


class SumView(TypedDict):
    """The share of the people with one of several answers."""

    categories: list[str]
    share: ShareView


class RowDifferenceView(TypedDict):
    """The difference of a share between the first row and the second."""

    rows: list[str]
    column: str
    difference: ShareView


class IndependenceView(TypedDict):
    """A test of whether two questions are independent in the population."""

    statistic: float
    degrees: int
    p_value: float


class CrossTableView(TypedDict):
    """A table of two questions that were asked as one; "cells" are the nearest possible shares, and margins their sums.

    "within_rows" are the shares of the answers to the second question among people with each answer to the first;
    "differences" compare each row with the first one.
    """

    questions: list[str]
    rows: list[str]
    columns: list[str]
    cells: list[list[float]]
    row_shares: list[ShareView]
    column_shares: list[ShareView]
    within_rows: list[list[ShareView]]
    differences: list[RowDifferenceView]
    independence: IndependenceView
