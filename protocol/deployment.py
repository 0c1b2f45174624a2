"""The public deployment file, from which everybody starts; a service's own files are `runtime.service_directory`'s.

The deployment file (TOML) names every service, where it listens, and pins its identity and TLS certificate. It is
all that a client needs in order to trust a round. `deploy.operator.keys` writes it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from protocol.toml_file import Address, read_toml

__all__ = ["DEPLOYMENT_FILE", "OPERATOR", "Deployment", "PrivacyLimit", "ServiceEntry", "load_deployment"]

OPERATOR = "operator"
DEPLOYMENT_FILE = "deployment.toml"
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
_Url = Annotated[str, StringConstraints(pattern=r"^(https://|http://(127\.|localhost))[^\s?#]+$")]
_Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Pem = Annotated[str, StringConstraints(pattern=r"^-----BEGIN CERTIFICATE-----")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServiceEntry(_Strict):
    """One service as everybody sees it.

    Attributes:
        address: where peers and the operator call, with mutual TLS.
        public_address: where clients call, TLS with this service's certificate; only where clients need it.
        identity: Ed25519 public key, hexadecimal: the active one, with which the service signs.
        tls_certificate: PEM, self-signed; this very certificate is what peers trust.
        pending_identity, pending_tls_certificate: trusted already, so that the service can change to them.
        retired_identities: trusted for as long as rounds from before the change are of interest.
    """

    name: _Name
    role: Literal["shuffler", "accountant", "analyzer"]
    address: Address
    public_address: Address | None = None
    identity: _Hex32
    tls_certificate: _Pem
    pending_identity: _Hex32 | None = None
    pending_tls_certificate: _Pem | None = None
    retired_identities: tuple[_Hex32, ...] = ()

    @property
    def identities(self) -> tuple[bytes, ...]:
        """Every Ed25519 key that may sign for the service, the active one first."""
        pending = (self.pending_identity,) if self.pending_identity else ()
        return tuple(bytes.fromhex(key) for key in (self.identity, *pending, *self.retired_identities))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its addresses, each once."""
        addresses = (self.address, self.public_address or self.address)
        return tuple(dict.fromkeys(address.rpartition(":")[0] for address in addresses))

    @property
    def tls_certificates(self) -> tuple[str, ...]:
        """Every certificate that the service may show."""
        return (self.tls_certificate, *([self.pending_tls_certificate] if self.pending_tls_certificate else []))


class PrivacyLimit(_Strict):
    """The most that one client may lose over all rounds of the deployment; the accountant's ledger enforces it.

    Attributes:
        total_epsilon, total_delta: by the reports.
        max_rounds: the most rounds that may tell something about budgets, granted or refused; 0: any number.
        fixed_terms: whether the operator states that the terms of all rounds, and who takes part with which budget, are
            fixed before the first result. The ledger then composes privacy losses, to less than its privacy filter
            says, and every certificate names the assumption.
    """

    total_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    total_delta: Annotated[float, Field(gt=0, le=0.1)]
    max_rounds: Annotated[int, Field(ge=0, lt=2**32)] = 0
    fixed_terms: bool = False


class Deployment(_Strict):
    """The whole deployment file. Shufflers are chained in the order in which they stand.

    Without a privacy_limit the ledger records what is spent and refuses nothing. A gateway is named where the operator
    runs one, for `croupier doctor` and for people to read; no promise rests on it.
    """

    name: _Name
    operator_tls_certificate: _Pem
    services: tuple[ServiceEntry, ...]
    privacy_limit: PrivacyLimit | None = None
    gateway: _Url | None = None

    @model_validator(mode="after")
    def _check(self) -> Deployment:
        roles = Counter(entry.role for entry in self.services)
        if not roles["shuffler"] or roles["accountant"] != 1 or roles["analyzer"] != 1:
            raise ValueError(
                f"services are {dict(roles)}; needed are one accountant, one analyzer and at least one shuffler"
            )
        names = [entry.name for entry in self.services]
        if len(set(names)) != len(names) or OPERATOR in names:
            raise ValueError(f"service names are {names}; they must differ, and {OPERATOR!r} is taken")
        if None in (entry.public_address for entry in (self.shufflers[0], self.accountant, self.analyzer)):
            raise ValueError(
                "the first shuffler, the accountant and the analyzer need a public_address: clients call them"
            )
        return self

    @property
    def shufflers(self) -> tuple[ServiceEntry, ...]:
        """The shufflers in the order of the chain, hop 1 first."""
        return tuple(entry for entry in self.services if entry.role == "shuffler")

    @property
    def accountant(self) -> ServiceEntry:
        """The one accountant."""
        return next(entry for entry in self.services if entry.role == "accountant")

    @property
    def analyzer(self) -> ServiceEntry:
        """The one analyzer."""
        return next(entry for entry in self.services if entry.role == "analyzer")

    def service(self, name: str) -> ServiceEntry:
        """Returns the entry of this name; raises ValueError if there is none."""
        for entry in self.services:
            if entry.name == name:
                return entry
        raise ValueError(f"no service {name!r}; there are {', '.join(entry.name for entry in self.services)}")

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of all services, each of which signs every manifest, in the order of `RoundTerms.services`."""
        return (*(entry.name for entry in self.shufflers), self.accountant.name, self.analyzer.name)

    @property
    def identities(self) -> dict[str, tuple[bytes, ...]]:
        """The pinned Ed25519 keys by name."""
        return {entry.name: entry.identities for entry in self.services}


def load_deployment(path: Path) -> Deployment:
    """Reads a deployment file.

    Raises:
        ValueError: naming the file and every field that is missing, unknown or out of range.
    """
    try:
        return read_toml(path, Deployment, "deployment file")
    except FileNotFoundError as error:
        raise ValueError(
            f"{path} does not exist (at the command line --dir says where it lies); participants get it from the "
            "operator, 'croupier init' makes a deployment for several machines, 'croupier up' one on this machine"
        ) from error
