"""What a round would come to: 'croupier survey check one', and the forecast with which 'survey open' begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from croupier.cli.console import note
from croupier.deploy.directory import read_deployment
from croupier.operator.operator import Operator
from croupier.operator.round_settings import RoundSettings, check_settings
from croupier.protocol.codes import RefusalReason
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment
from croupier.protocol.names import JsonObject
from croupier.show.forecasts import forecast_json

if TYPE_CHECKING:
    from croupier.operator.forecasts import GridFit

EXACT_COUNTS = (
    "the certificate of this round counts exactly how many people used each budget (--budget-privacy 0): the first "
    "shuffler can read one person's budget from it, by losing what others have sent, and everybody can see that a rare "
    "budget was used. --budget-privacy 1 hides that, and leaves out about 27 people of every budget"
)


@Parameter(name="*", group="People and time")
@dataclass(frozen=True)
class ForecastOptions:
    """The people that a round is forecast for, and what the operator risks."""

    expected: Annotated[
        int, Parameter(help="Forecast the round for this many people, too; 0: for --min-batch-size only.")
    ] = 0
    at_risk: Annotated[
        bool,
        Parameter(
            help="Offer every budget of --grid, although the accountant may refuse the round for some choice of "
            "them, which destroys its answers."
        ),
    ] = False

    def fitted(self, settings: RoundSettings, deployment: Deployment | None) -> GridFit:
        """Returns the settings with a grid; writes to standard error what was left out of it and why.

        Raises:
            ValueError: the terms cannot be, or the round cannot be granted.
        """
        from croupier.operator.forecasts import fit

        if not 0 <= self.expected < 2**31:
            raise ValueError(f"expected is {self.expected}; it must be in 0..{2**31 - 1}")
        fitted = fit(settings, deployment, at_risk=self.at_risk, expected=self.expected)
        if fitted.warning:
            note(fitted.warning)
        if len(fitted.settings.budget_grid) > 1 and not fitted.settings.counted_by.most_uncounted:
            note(EXACT_COUNTS)
        return fitted


def fitted_json(fitted: GridFit) -> JsonObject:
    """Returns the budgets that a round offers, and those that were left out."""
    return {
        "grid": list(fitted.settings.budget_grid),
        "left_out": list(fitted.left_out),
        "largest_budget": fitted.largest,
        "at_risk": fitted.at_risk,
    }


async def forecasts_of(
    options: ForecastOptions, fitted: GridFit, operator: Operator | None, deployment: Deployment | None
) -> list[JsonObject]:
    """Returns the forecasts for the minimum, and for as many people as are expected.

    Raises:
        ValueError: the ledger cannot bear the round at its minimum, or whatever budgets people use.
    """
    from croupier.operator.forecasts import forecast_opening

    least = fitted.settings.min_batch_size
    people = sorted({least, max(least, options.expected)})
    terms = check_settings(fitted.settings, deployment)
    forecasts = [forecast_json(await forecast_opening(operator, terms, person)) for person in people]
    ledger = {str(RefusalReason.LEDGER_EXCEEDED), str(RefusalReason.LEDGER_UNBOUNDED), str(RefusalReason.ROUNDS_SHOWN)}
    for forecast in forecasts[-1:] if options.at_risk else forecasts[:1]:
        full = [[why for why in outcome["refusals"] if why["code"] in ledger] for outcome in forecast["outcomes"]]
        if (all if options.at_risk else any)(full):
            why = next(reasons[0]["text"] for reasons in full if reasons)
            raise ValueError(
                f"the ledger cannot bear this round with {forecast['num_reports']:,} people: {why}. Choose smaller "
                "budgets or a larger --min-batch-size; 'croupier ledger --forecast' shows the remaining budget"
            )
    return forecasts


def deployment_in(directory: Path) -> Deployment | None:
    """Returns the deployment of a directory; None if it has none."""
    return read_deployment(directory) if (directory / DEPLOYMENT_FILE).exists() else None
