"""Budget privacy: noise on the number of clients that used each budget, before anything is computed from it.

The manifest states an epsilon and a delta. For every budget of the grid the accountant draws noise once, and counts
max(0, users - radius + Z) of them; Z is the noise of a count in `protocol.hop_noise`, at most `radius` in size. So a
count is never above the truth, and one client's budget, which changes two counts by one, is (epsilon, delta)-private in
everything that is computed from the counts (docs/accounting.md, 7.2). Drawing is left to `runtime.noise`.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.protocol.hop_noise import MAX_DELTA, MAX_EPSILON, MIN_DELTA, MIN_EPSILON, FakeLaw, noise_of_counts
from croupier.protocol.v1 import messages_pb2 as pb

DEFAULT_BUDGET_EPSILON = 1.0
DEFAULT_BUDGET_DELTA = 1e-6
LEAST_PEOPLE = 4
"""A round has budget privacy by default if its smallest batch has this many times the people that the counts leave out:
with fewer, the certified epsilon would be larger by more than about a seventh, as it falls with the root of the people.
"""


@dataclass(frozen=True)
class BudgetPrivacy:
    """How well the counts of a round's budgets hide the budget of one client.

    Raises:
        ValueError: epsilon outside [0.001, 20], or delta outside [1e-12, 1e-3].
    """

    epsilon: float = DEFAULT_BUDGET_EPSILON
    delta: float = DEFAULT_BUDGET_DELTA

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("epsilon", self.epsilon, MIN_EPSILON, MAX_EPSILON),
            ("delta", self.delta, MIN_DELTA, MAX_DELTA),
        ):
            if not least <= value <= most:
                raise ValueError(f"budget_privacy {name} is {value!r}; it must be in [{least:g}, {most:g}]")

    @property
    def law(self) -> FakeLaw:
        """The law of the noise Z of each count."""
        return noise_of_counts(self.epsilon, self.delta)

    @property
    def radius(self) -> int:
        """The largest |Z|, and how many users of every budget are left out on average."""
        return self.law.radius

    @property
    def most_uncounted(self) -> int:
        """The most users of a budget that are not counted."""
        return 2 * self.radius

    def counted(self, users: int, shift: int) -> int:
        """Returns how many of a budget's users are counted where `shift` is the noise that was drawn."""
        return max(0, users - self.radius + shift)


def privacy_message(privacy: BudgetPrivacy) -> pb.BudgetPrivacy:
    """Returns the message of a manifest or a certificate."""
    return pb.BudgetPrivacy(epsilon=privacy.epsilon, delta=privacy.delta)


def privacy_of(document: pb.Manifest | pb.Certificate) -> BudgetPrivacy | None:
    """Returns the budget privacy that a manifest or a certificate states; None without.

    Raises:
        ValueError: it is outside its range, or a certificate states another number of users that are not counted.
    """
    if not document.HasField("budget_privacy"):
        return None
    privacy = BudgetPrivacy(document.budget_privacy.epsilon, document.budget_privacy.delta)
    if isinstance(document, pb.Certificate) and document.most_uncounted != privacy.most_uncounted:
        raise ValueError(
            f"most_uncounted is {document.most_uncounted}; with this budget_privacy it must be {privacy.most_uncounted}"
        )
    return privacy
