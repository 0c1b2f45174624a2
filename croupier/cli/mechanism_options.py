"""The options that say which mechanism a certificate or a plan is about, and in which setting; shared by commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from croupier.accountant.ranges import DEFAULT_DELTA, check_linkage
from croupier.protocol.hop_noise import HopNoise
from croupier.protocol.mechanisms import KINDS_WITH_FAKES, MECHANISMS

if TYPE_CHECKING:
    from croupier.accountant import Randomizer
    from croupier.accountant.release import Conditions


RandomizerName = Annotated[
    str,
    Parameter(
        "--randomizer",
        group="The question and its randomizer",
        help=f"{', '.join(MECHANISMS)}; parameters follow, as in krr(k=5), laplace(lattice=100) or "
        "gaussian_vector(d=10, records=10).",
    ),
]


@Parameter(name="*", group="Privacy")
@dataclass(frozen=True)
class ObserverOptions:
    """What the observer of a batch knows beside the reports."""

    dishonest: Annotated[int, Parameter(help="How many of the other clients may be dishonest.")] = 0
    linkage: Annotated[str, Parameter(help="separate, or stratified: a report shows its tier.")] = "separate"


@Parameter(name="*")
@dataclass(frozen=True)
class SettingOptions(ObserverOptions):
    """What the observer of several rounds knows."""

    rounds: Annotated[
        int,
        Parameter(
            help="How many such rounds one client takes part in, at least 1; delta and epsilon are of all together."
        ),
    ] = 1


@Parameter(name="*", group="Hops and their fake reports")
@dataclass(frozen=True)
class HopNoiseOption:
    """The fake reports that every hop adds, at the default delta."""

    hop_noise: Annotated[
        float | None,
        Parameter(
            help="Every hop adds fake reports: the epsilon that one honest hop then guarantees in each round, 0.001 to "
            f"20 ({', '.join(KINDS_WITH_FAKES)}; clients refuse local epsilons above 8 unless their own limit "
            "allows it); none: no fakes. A plan finds the fewest fakes for it; other commands take the law of fakes "
            "that guarantees it whatever the local noise is, and certificates state what the local noise adds."
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether hops add fakes."""
        return self.hop_noise is not None


@Parameter(name="*", group="Hops and their fake reports")
@dataclass(frozen=True)
class HopNoiseOptions(HopNoiseOption):
    """The fake reports that every hop adds."""

    hop_noise_delta: Annotated[
        float | None,
        Parameter(help="The delta of the fakes of a round; default: a round's share of --delta."),
    ] = None


@Parameter(name="*", group="Hops and their fake reports")
@dataclass(frozen=True)
class HopsOptions(HopNoiseOptions):
    """The hops of a certificate, and the fake reports that each adds."""

    hops: Annotated[int, Parameter(help="How many hops add fakes, at least 1.")] = 2

    def conditions(self, setting: SettingOptions, delta: float | None = None) -> Conditions:
        """Returns the conditions of each round of a setting, which have this delta together, as `certify` takes them.

        Raises:
            ValueError: an epsilon or a delta outside its range, or a delta without an epsilon.
        """
        share = DEFAULT_DELTA if delta is None else delta / max(setting.rounds, 1)
        return {
            "dishonest": setting.dishonest,
            "linkage": check_linkage(setting.linkage),
            "hop_noise": HopNoise.chosen(self.hop_noise, self.hop_noise_delta, share),
            "hops": self.hops,
        }

    def guarantee(self, conditions: Conditions) -> Conditions:
        """Returns conditions with the fewest fakes whose guarantee is their hop noise."""
        from croupier.accountant.hop_noise_choice import HopGuarantee

        noise = conditions["hop_noise"]
        wanted = HopGuarantee(noise.epsilon, noise.delta) if isinstance(noise, HopNoise) else None
        return {**conditions, "hop_noise": wanted}


def planned_randomizer(name: str) -> Randomizer | str:
    """Returns the randomizer of a round that is planned, by default on a round's lattice; a purpose as its name.

    Raises:
        ValueError: the name is unknown, or a parameter is missing, out of range, or of another randomizer.
    """
    from croupier.accountant import randomizer_from_name
    from croupier.accountant.mechanism_choice import purpose_of

    if purpose_of(name) is not None:
        return name
    lattice: int | None = getattr(MECHANISMS.get(name), "lattice", None)
    return randomizer_from_name(name) if lattice is None else randomizer_from_name(name, lattice=lattice)
