"""The accountant: certified central (ε, δ) of a shuffled batch from its users' local budgets.

The numeric core needs neither gRPC nor a database, so it serves a notebook:

    >>> from accountant import BinaryRandomizedResponse, certify
    >>> certify([1.0] * 10_000, BinaryRandomizedResponse(), delta=1e-6).epsilon  # doctest: +ELLIPSIS
    0.0432...
"""

from accountant.budgets import Budgets, Tier, read_budgets_csv
from accountant.certify import certify
from accountant.randomizers import (
    BinaryRandomizedResponse,
    KaryRandomizedResponse,
    LaplaceMechanism,
    OneBitMean,
    Randomizer,
)
from accountant.results import Certificate, Comparison, Grade, Guarantee, TierCertificate

__all__ = [
    "BinaryRandomizedResponse",
    "Budgets",
    "Certificate",
    "Comparison",
    "Grade",
    "Guarantee",
    "KaryRandomizedResponse",
    "LaplaceMechanism",
    "OneBitMean",
    "Randomizer",
    "Tier",
    "TierCertificate",
    "certify",
    "read_budgets_csv",
]
