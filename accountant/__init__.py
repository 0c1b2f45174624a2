"""The accountant: what a shuffled release of locally randomised reports guarantees, proved at the actual n.

A library first: `from accountant import certify` needs numpy and scipy, and neither gRPC nor storage. Names are loaded
when they are first used, so that importing the package costs nothing. The mathematics is in docs/accounting.md.

    >>> from accountant import BinaryRandomizedResponse, certify
    >>> round(certify([1.0] * 10_000, BinaryRandomizedResponse(), delta=1e-6).epsilon, 4)
    0.0432
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accountant.attacks import lower_bound
    from accountant.budgets import Budgets, Tier, read_budgets_csv
    from accountant.certification import certify
    from accountant.planner import Plan, plan
    from accountant.profile import PrivacyCurve, privacy_curve
    from accountant.published import OutOfRangeError, compare
    from accountant.randomizers import (
        BinaryRandomizedResponse,
        GaussianMechanism,
        HemisphereMechanism,
        KaryRandomizedResponse,
        LaplaceMechanism,
        OneBitMean,
        Randomizer,
        TableMechanism,
        randomizer_from_name,
    )
    from accountant.results import (
        Certificate,
        Comparison,
        Grade,
        Guarantee,
        LowerBound,
        Status,
        TierCertificate,
    )

__all__ = [
    "BinaryRandomizedResponse",
    "Budgets",
    "Certificate",
    "Comparison",
    "GaussianMechanism",
    "Grade",
    "Guarantee",
    "HemisphereMechanism",
    "KaryRandomizedResponse",
    "LaplaceMechanism",
    "LowerBound",
    "OneBitMean",
    "OutOfRangeError",
    "Plan",
    "PrivacyCurve",
    "Randomizer",
    "Status",
    "TableMechanism",
    "Tier",
    "TierCertificate",
    "certify",
    "compare",
    "lower_bound",
    "plan",
    "privacy_curve",
    "randomizer_from_name",
    "read_budgets_csv",
]

_HOMES = {
    "budgets": ("Budgets", "Tier", "read_budgets_csv"),
    "attacks": ("lower_bound",),
    "certification": ("certify",),
    "planner": ("Plan", "plan"),
    "profile": ("PrivacyCurve", "privacy_curve"),
    "published": ("OutOfRangeError", "compare"),
    "randomizers": (
        "BinaryRandomizedResponse",
        "GaussianMechanism",
        "HemisphereMechanism",
        "KaryRandomizedResponse",
        "LaplaceMechanism",
        "OneBitMean",
        "Randomizer",
        "TableMechanism",
        "randomizer_from_name",
    ),
    "results": ("Certificate", "Comparison", "Grade", "Guarantee", "LowerBound", "Status", "TierCertificate"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'accountant' has no attribute {name!r}")
    value = getattr(import_module(f"accountant.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
