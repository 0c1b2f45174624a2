"""The public deployment file, from which everybody starts; a service's own files are `runtime.service_directory`'s.

The deployment file (TOML) names every service, where it listens, and pins its identity and TLS certificate. It is
all that a client needs in order to trust a round. `operator.keys` writes it. Every service has signed it; which
version of it follows another one, `protocol.versions` says.
"""

from __future__ import annotations

import json
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    model_validator,
)

from croupier.protocol.errors import SignatureError
from croupier.protocol.identity import Identity, Kind, Pinned, document_hash, verify_signature
from croupier.protocol.names import Digest, HostName
from croupier.protocol.shown import check_shown
from croupier.protocol.toml_file import Address, read_toml
from croupier.protocol.v1.messages_pb2 import Signature

OPERATOR = "operator"
DEPLOYMENT_FILE = "deployment.toml"
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
_Url = Annotated[str, StringConstraints(pattern=r"^(https://|http://(127\.|localhost))[!\x22\x24-\x3e\x40-\x7e]+$")]
_Hex32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Pem = Annotated[str, StringConstraints(pattern=r"^-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\r\n -]*$")]
"""A certificate."""


def _displayable(text: str) -> str:
    check_shown("it", text)
    return text


_Text = Annotated[str, StringConstraints(max_length=200), AfterValidator(_displayable)]


def _as_compared(name: str) -> str:
    """Returns a name by which two that look alike to people are the same."""
    shown = (
        char for char in unicodedata.normalize("NFKC", name).casefold() if unicodedata.category(char)[0] not in "CZ"
    )
    return "".join(shown)


class Strict(BaseModel):
    """A part of a file: no unknown lines, and no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


CLOCKS_DIFFER_S = 60
"""How much later than `valid_until` a round may have been made: the clocks of the machines differ (`croupier doctor`
allows 10 s), and a service needs a second to notice its new keys. More would help only someone who has stolen them."""


class RetiredIdentity(Strict):
    """An identity that a service has signed with before its present one.

    Attributes:
        identity: Ed25519 public key, hexadecimal.
        valid_until: when the service stopped signing with it. It is believed in rounds whose time (`created_unix_s` of
            a manifest's keys) is at most 60 s later, and in no others; not in a round without a time. Without this
            line, or where the entry is a string instead of a table (an older croupier has retired it), it is believed
            in every round.
        compromised: someone else may know the private key; nothing that it has signed is believed.
    """

    identity: _Hex32
    valid_until: AwareDatetime | None = None
    compromised: bool = False

    def objection(self, round_unix_s: int | None) -> str | None:
        """Returns why the identity is not believed in a round, None if it is.

        Args:
            round_unix_s: the time of the round (`protocol.manifest.verify_manifest`); None if it is not known.
        """
        if self.compromised:
            return (
                f"the identity {self.identity[:8]}…, which the deployment file marks as compromised: someone else may "
                "have signed this, and nothing that only this identity has signed is believed"
            )
        if self.valid_until is None:
            return None
        until = self.valid_until.astimezone(UTC)
        retired = f"the identity {self.identity[:8]}…, which was retired on {until:%Y-%m-%d at %H:%M UTC}"
        if round_unix_s is None:
            return f"{retired}; the document does not say that its round is from before"
        if round_unix_s > self.valid_until.timestamp() + CLOCKS_DIFFER_S:
            made = datetime.fromtimestamp(round_unix_s, UTC)
            return f"{retired}, before this round was made on {made:%Y-%m-%d at %H:%M UTC}"
        return None


class ServiceEntry(Strict):
    """One service as everybody sees it.

    Attributes:
        name: by which every other file and message names the service; its TLS certificate is for this name.
        role: "shuffler", "accountant" or "analyzer".
        address: `host:port` where peers and the operator call, with mutual TLS.
        public_address: `host:port` where clients call, TLS with this service's certificate; only where clients need it.
        identity: Ed25519 public key, hexadecimal: the active one, with which the service signs.
        tls_certificate: PEM, self-signed; callers trust this very certificate and no other.
        pending_identity, pending_tls_certificate: trusted already, so that the service can change to them.
        retired_identities: the ones before, oldest first, believed in rounds of their time.
        organisation: who runs the service, as they name themselves; for people to read.
        administrator: the person or team with access to the service's machine, as they name themselves.
    """

    name: _Name
    role: Literal["shuffler", "accountant", "analyzer"]
    address: Address
    public_address: Address | None = None
    identity: _Hex32
    tls_certificate: Pem
    pending_identity: _Hex32 | None = None
    pending_tls_certificate: Pem | None = None
    retired_identities: Annotated[tuple[RetiredIdentity, ...], FailFast()] = ()
    organisation: _Text = ""
    administrator: _Text = ""

    @model_validator(mode="after")
    def _check(self) -> ServiceEntry:
        if len(set(self.identities)) != len(self.identities):
            raise ValueError(f"an identity of {self.name} is listed twice; it must be active, pending or retired")
        return self

    @property
    def identities(self) -> tuple[bytes, ...]:
        """Every Ed25519 key of the service, the active one first; which are believed in a round, `pinned` says."""
        pending = (self.pending_identity,) if self.pending_identity else ()
        retired = (retired.identity for retired in self.retired_identities)
        return tuple(bytes.fromhex(key) for key in (self.identity, *pending, *retired))

    def pinned(self, round_unix_s: int | None) -> Mapping[bytes, str | None]:
        """Returns every key with why it is not believed in a round of this time; see `RetiredIdentity.objection`."""
        retired = {
            bytes.fromhex(identity.identity): identity.objection(round_unix_s) for identity in self.retired_identities
        }
        return {key: retired.get(key) for key in self.identities}

    @property
    def hosts(self) -> tuple[HostName, ...]:
        """The hosts of its addresses, each once."""
        addresses = (self.address, self.public_address or self.address)
        return tuple(dict.fromkeys(HostName(address.rpartition(":")[0]) for address in addresses))

    @property
    def live_identities(self) -> tuple[str, ...]:
        """The active identity and the pending one, hexadecimal."""
        return (self.identity, *([self.pending_identity] if self.pending_identity else []))

    @property
    def tls_certificates(self) -> tuple[str, ...]:
        """Every certificate that the service may show."""
        return (self.tls_certificate, *([self.pending_tls_certificate] if self.pending_tls_certificate else []))


class PrivacyLimit(Strict):
    """The most that one client may lose over all rounds of the deployment; the accountant's ledger enforces it.

    Attributes:
        total_epsilon: the largest ε of all rounds together.
        total_delta: the δ of all rounds together; make it at least four times the sum of the rounds' own.
        max_rounds: the most rounds that may tell something about budgets, granted or refused; 0: any number. It
            protects the budgets of people who take part often.
        fixed_terms: whether the operator states that the terms of all rounds, and who takes part with which budget, are
            fixed before the first result. The ledger then composes privacy losses, to 5 to 40 % less ε than its privacy
            filter says, and every certificate names the assumption.
    """

    total_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    total_delta: Annotated[float, Field(gt=0, le=0.1)]
    max_rounds: Annotated[int, Field(ge=0, lt=2**32)] = 0
    fixed_terms: bool = False


def canonical_json(model: BaseModel, *, without: set[str]) -> bytes:
    """Returns what a signature covers: the fields that are not at their defaults, in one order, without blanks."""
    fields = model.model_dump(mode="json", exclude=without, exclude_defaults=True)
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def is_by(identity: str, kind: Kind, statement: bytes, signature: Signature) -> bool:
    """Returns whether a signature on a statement is by this Ed25519 public key, hexadecimal."""
    try:
        verify_signature(kind, statement, signature, {signature.signer: {bytes.fromhex(identity): None}})
    except SignatureError:
        return False
    return True


class FileSignature(Strict):
    """The signature of one service on a file.

    Attributes:
        signer: the service.
        identity: the Ed25519 public key that the signature is by.
        signature: over the file's statement, hexadecimal; of a file with several, one after the other.
    """

    signer: _Name
    identity: _Hex32
    signature: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{128})+$")]

    @property
    def signatures(self) -> list[Signature]:
        """The signature on each statement of the file."""
        made = (self.signature[start : start + 128] for start in range(0, len(self.signature), 128))
        return [Signature(signer=self.signer, signature=bytes.fromhex(signature)) for signature in made]

    def is_valid(self, kind: Kind, statements: Sequence[bytes]) -> bool:
        """Returns whether this identity has signed each of the statements."""
        made = self.signatures
        return len(made) == len(statements) and all(
            is_by(self.identity, kind, statement, signature)
            for statement, signature in zip(statements, made, strict=True)
        )

    @staticmethod
    def made(signer: Identity, kind: Kind, statements: Sequence[bytes]) -> FileSignature:
        """Returns the signature of a service over statements."""
        made = (signer.sign(kind, statement).signature.hex() for statement in statements)
        return FileSignature(signer=signer.name, identity=signer.public_key.hex(), signature="".join(made))


class Quorum(NamedTuple):
    """The signatures that a file needs.

    Attributes:
        demands: by the name of each service or organisation that is asked: sets of (service, identity), one of each of
            which has to sign.
        needed: how many of these names must have signed.
    """

    demands: Mapping[str, Sequence[Set[tuple[str, str]]]]
    needed: int

    def signed_by(self, signers: Set[tuple[str, str]]) -> list[str]:
        """Returns the names that have signed, where these (service, identity) have."""
        return [name for name, demanded in self.demands.items() if all(keys & signers for keys in demanded)]

    def missing(self, signers: Set[tuple[str, str]]) -> list[str]:
        """Returns the names that have not signed yet; none where enough have."""
        signed = self.signed_by(signers)
        return [name for name in self.demands if name not in signed] if len(signed) < self.needed else []


class SignedFile(Strict):
    """A file that services of several organisations sign together, with their signatures in it.

    Attributes:
        signatures: by services, each over all statements.
    """

    kind: ClassVar[Kind]
    signatures: Annotated[tuple[FileSignature, ...], FailFast()] = ()

    @property
    def statement(self) -> bytes:
        """Everything but the signatures."""
        return canonical_json(self, without={"signatures"})

    @property
    def statements(self) -> Sequence[bytes]:
        """What each service signs."""
        return (self.statement,)

    @property
    def fingerprint(self) -> Digest:
        """The hash by which people, and the next version of a deployment file, name this one."""
        return document_hash(self.kind, self.statement)

    def valid_signatures(self) -> dict[tuple[str, str], FileSignature]:
        """Returns the valid signatures by (service, identity)."""
        statements = self.statements
        return {
            (signature.signer, signature.identity): signature
            for signature in self.signatures
            if signature.is_valid(self.kind, statements)
        }

    @abstractmethod
    def quorum(self, before: Deployment | None = None, accept_loss: Collection[str] = ()) -> Quorum:
        """Returns the signatures that the file needs.

        Args:
            before: the deployment in force; None before the first.
            accept_loss: the services that need not have agreed with an identity that they have there.
        """

    def signed_by(self, before: Deployment | None = None, accept_loss: Collection[str] = ()) -> list[str]:
        """Returns the services or organisations that have signed; arguments as `quorum`."""
        return self.quorum(before, accept_loss).signed_by(self.valid_signatures().keys())

    def not_signed_by(self, before: Deployment | None = None, accept_loss: Collection[str] = ()) -> list[str]:
        """Returns the services or organisations whose signatures are missing; arguments as `quorum`."""
        return self.quorum(before, accept_loss).missing(self.valid_signatures().keys())


class OperatorEntry(Strict):
    """Who runs the operator's commands, as they name themselves; for people to read.

    Attributes:
        organisation, administrator: as in `ServiceEntry`.
        host: the machine with the operator's keys, by the name that services on the same machine have.
    """

    organisation: _Text = ""
    administrator: _Text = ""
    host: _Text = ""


class Deployment(SignedFile):
    """The whole deployment file. Shufflers are chained in the order in which they stand.

    Without a privacy_limit the ledger records what is spent and refuses nothing. A gateway is named where the operator
    runs one, for `croupier doctor` and for people to read; no promise rests on it.

    Attributes:
        name: the deployment's.
        operator_tls_certificate: PEM, self-signed; by it services know the operator.
        services: in the order of the chain: the shufflers from hop 1, one accountant, one analyzer.
        privacy_limit: the most that one client may lose over all rounds (docs/operations-reference.md).
        gateway: the URL of a gateway that passes clients' calls on.
        approvals: how many organisations must have signed what the operator opens, enrols and revokes, each with the
            identity of one of its services; 0: none, the operator decides alone. See `protocol.approvals`.
        operator: who runs the operator's commands; missing in a file of one person, and of an older croupier.
        minimum_version: the oldest croupier that may run a service, such as 0.2.0; empty: any. `croupier doctor` names
            services that are older.
        version: 1 for the first file, one more for each change.
        previous: the fingerprint of the version before.
        participant_pages: the SHA-256 of each page that gateways may serve to participants, the newest first; empty
            where none is named.
        signatures: by every service: its name (`signer`), its `identity`, and `signature`, Ed25519 over
            context("deployment") + the canonical JSON of all other fields, hexadecimal. Canonical JSON has the fields
            that are not at their defaults, sorted by name, without blanks (`canonical_json`).
    """

    kind: ClassVar = Kind.DEPLOYMENT

    name: _Name
    version: Annotated[int, Field(ge=1, lt=2**31)] = 1
    previous: _Hex32 | None = None
    operator_tls_certificate: Pem
    operator: OperatorEntry | None = None
    # The first entry that is wrong ends a list: a file from others may hold 300,000 empty ones.
    services: Annotated[tuple[ServiceEntry, ...], FailFast()]
    privacy_limit: PrivacyLimit | None = None
    gateway: _Url | None = None
    approvals: Annotated[int, Field(ge=0)] = 0
    minimum_version: Annotated[str, StringConstraints(pattern=r"^(\d{1,6}(\.\d{1,6}){0,3})?$")] = ""
    participant_pages: Annotated[tuple[_Hex32, ...], FailFast()] = ()

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
        self._check_approvals()
        if None in (entry.public_address for entry in (self.shufflers[0], self.accountant, self.analyzer)):
            raise ValueError(
                "the first shuffler, the accountant and the analyzer need a public_address: clients call them"
            )
        return self

    def _check_approvals(self) -> None:
        if not self.approvals:
            return
        if unnamed := [entry.name for entry in self.services if not entry.organisation]:
            raise ValueError(
                f"approvals is {self.approvals}, and {', '.join(unnamed)} names no organisation: with approvals, each "
                "service must name its own"
            )
        alike: dict[str, str] = {}
        for entry in self.services:
            first = alike.setdefault(_as_compared(entry.organisation), entry.organisation)
            if first != entry.organisation:
                raise ValueError(
                    f"the organisations {first!r} and {entry.organisation!r} look alike; write one in the same way for "
                    "all of its services, or tell the two apart"
                )
        if self.approvals > len(alike):
            raise ValueError(
                f"approvals is {self.approvals}, but {len(alike)} organisations run services: it must be in "
                f"0..{len(alike)}"
            )

    def quorum(self, before: Deployment | None = None, accept_loss: Collection[str] = ()) -> Quorum:
        """Returns the signatures that this version needs: of every service, with its identity in each of the two."""
        demands = {name: [{(name, self.service(name).identity)}] for name in self.chain}
        for entry in before.services if before is not None else ():
            if entry.name not in accept_loss:
                demands[entry.name].append({(entry.name, identity) for identity in entry.live_identities})
        return Quorum(demands, len(demands))

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
        """Every Ed25519 key by name of the service; see `ServiceEntry.identities`."""
        return {entry.name: entry.identities for entry in self.services}

    def pinned(self, round_unix_s: int | None = None) -> Pinned:
        """Returns the keys that signatures on documents of a round are checked with.

        Args:
            round_unix_s: the time of the round; None where it is not known, and for documents that were made just now:
                then no identity with a date of retirement is believed.
        """
        return {entry.name: entry.pinned(round_unix_s) for entry in self.services}


def load_deployment(path: Path) -> Deployment:
    """Reads a deployment file that every service has signed.

    Raises:
        ValueError: naming the file and every field that is missing, unknown or out of range, or the services that have
            not signed it.
    """
    deployment = read_unchecked(path)
    if missing := deployment.not_signed_by():
        raise ValueError(
            f"{path} lacks the signature of {', '.join(missing)}: it was changed after they signed it, or they have "
            f"not signed it yet. Get the file that all have signed; or, where the keys are: croupier proposal sign "
            f"{path} --dir {path.parent}"
        )
    return deployment


def read_unchecked(path: Path) -> Deployment:
    """Reads a deployment file whose signatures are not checked: a proposal, or a file that is to be signed.

    Raises:
        ValueError: naming the file and every field that is missing, unknown or out of range.
    """
    try:
        return read_toml(path, Deployment, "deployment file", is_sent=True)
    except FileNotFoundError as error:
        raise ValueError(
            f"{path} does not exist (at the command line --dir says where it lies); participants get it from the "
            "operator, 'croupier init' makes a deployment for several machines, 'croupier up' one on this machine"
        ) from error
