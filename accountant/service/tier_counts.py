"""The tier counts of a round with budget privacy: drawn once, and the only information on the budgets that leaves here.

Statement and proof: docs/accounting.md, 7.2.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from croupier.accountant.rounds.found import BudgetsFound
from croupier.protocol.manifest import RoundTerms
from croupier.runtime.kinds import DocumentKind
from croupier.runtime.noise import truncated_laplace
from croupier.runtime.transaction import Transaction


def noised(tx: Transaction, terms: RoundTerms, exact: BudgetsFound) -> BudgetsFound:
    """Returns the budgets of a round with noise on the count of every budget of the grid.

    The counts are durable when the transaction is, and nothing has left the accountant before: a repeated call, also
    after a crash, returns them and draws nothing. The noise is kept nowhere, because it would show the exact counts.
    Without budget privacy it returns the exact counts.
    """
    privacy = terms.counted_by.privacy
    if privacy is None:
        return exact
    kept = tx.document(terms.round_id, DocumentKind.TIER_COUNTS)
    if kept is None:
        law = privacy.law
        shifts = truncated_laplace(law.scale, law.radius, len(terms.budget_grid))
        counts = [
            privacy.counted(exact.counts[budget], shift)
            for budget, shift in zip(terms.budget_grid, shifts, strict=True)
        ]
        kept = json.dumps(counts).encode()
        tx.put_document(terms.round_id, DocumentKind.TIER_COUNTS, kept)
    counted = dict(zip(terms.budget_grid, json.loads(kept), strict=True))
    return replace(exact, counts=Counter(counted))
