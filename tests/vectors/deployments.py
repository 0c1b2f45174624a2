"""Makes tests/vectors/deployments.json: chains of versions of a deployment file that a client follows or refuses.

`signed` are versions as `versions.json` of a gateway states them. A case has what is wrong with it, the places of its
versions in `signed`, of which the first is believed, and the fingerprint of the newest one; null where it must not be
followed. Python's clients and the participants' page are both checked with it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

VERSIONS_FILE = Path(__file__).with_suffix(".json")
NAMES = ("shuffler-1", "shuffler-2", "accountant", "analyzer")
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
"""Nobody opens a channel here."""
_CONTEXT = b"croupier/v1/deployment\0"
Fields = dict[str, Any]


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"croupier deployments, {name}".encode()).digest())


def _identity(name: str) -> str:
    return _key(name).public_key().public_bytes_raw().hex()


def _statement(version: Fields) -> str:
    return json.dumps(version, sort_keys=True, separators=(",", ":"))


def _fingerprint(version: Fields) -> str:
    return hashlib.sha256(_CONTEXT + _statement(version).encode()).hexdigest()


def _signature(signer: str, key: str, version: Fields) -> Fields:
    message = _CONTEXT + _statement(version).encode()
    return {"signer": signer, "identity": _identity(key), "signature": _key(key).sign(message).hex()}


def _signed(version: Fields, by: dict[str, list[str]]) -> Fields:
    """A version with signatures: for each service the names of the keys that it signs with."""
    signatures = [_signature(signer, key, version) for signer, keys in by.items() for key in keys]
    return {"statement": _statement(version), "signatures": signatures}


def _service(name: str, port: int) -> Fields:
    role = name.partition("-")[0]
    addresses = {"address": f"{name}.example:{port}", "public_address": f"{name}.example:{port + 1}"}
    return {"name": name, "role": role, **addresses, "identity": _identity(name), "tls_certificate": _CERTIFICATE}


def _first() -> Fields:
    return {
        "name": "clinic",
        "operator_tls_certificate": _CERTIFICATE,
        "services": [_service(name, 7100) for name in NAMES],
        "privacy_limit": {"total_epsilon": 2.5, "total_delta": 1e-06},
    }


def _next(before: Fields, **changes: Any) -> Fields:
    number = before.get("version", 1) + 1
    return copy.deepcopy(before) | {"version": number, "previous": _fingerprint(before)} | changes


def _entry(version: Fields, name: str) -> Fields:
    entry: Fields = next(service for service in version["services"] if service["name"] == name)
    return entry


def _rotated(before: Fields, name: str, key: str) -> Fields:
    """The next version, in which a service signs with another key; the old one is retired."""
    version = _next(before)
    entry = _entry(version, name)
    retired = {"identity": entry["identity"], "valid_until": "2026-01-02T03:04:05.678901Z"}
    entry["retired_identities"] = [*entry.get("retired_identities", []), retired]
    entry["identity"] = _identity(key)
    return version


def make_versions() -> Fields:
    """Returns what the file holds."""
    first = _first()
    own = {name: [name] for name in NAMES}
    believed = _signed(first, own)
    rotated = _rotated(first, "shuffler-2", "another key")
    both = own | {"shuffler-2": ["shuffler-2", "another key"]}
    second = _signed(rotated, both)
    page = _next(rotated, participant_pages=["ab" * 32])
    now = own | {"shuffler-2": ["another key"]}
    signed: list[Fields] = []
    cases: list[Fields] = []

    def case(what: str, versions: list[Fields], newest: Fields | None) -> None:
        signed.extend(version for version in versions if version not in signed)
        fingerprint = None if newest is None else _fingerprint(newest)
        cases.append({"what": what, "versions": [signed.index(version) for version in versions], "newest": fingerprint})

    def wrong(what: str, version: Fields, by: dict[str, list[str]] | None = None) -> None:
        """A second version that must not be followed, signed as it needs to be in all but one thing."""
        case(what, [believed, _signed(version, by or own)], None)

    def changed(what: str, version: Fields | None = None, **fields: Any) -> None:
        """A third version whose second shuffler has other fields, signed by all."""
        third = copy.deepcopy(version or _next(rotated))
        entry = _entry(third, "shuffler-2")
        entry.update(fields)
        for name in [name for name, value in entry.items() if value is None]:
            del entry[name]
        case(what, [believed, second, _signed(third, now | {"shuffler-2": ["another key", "third key"]})], None)

    case("one version", [believed], first)
    case("an identity is replaced, then a page is named", [believed, second, _signed(page, now)], page)
    compromised = _next(rotated)
    _entry(compromised, "shuffler-2")["retired_identities"][0]["compromised"] = True
    case("a retired identity is marked as compromised", [believed, second, _signed(compromised, now)], compromised)
    announced = _next(first)
    _entry(announced, "analyzer")["pending_identity"] = _identity("pending key")
    active = _rotated(announced, "analyzer", "pending key")
    del _entry(active, "analyzer")["pending_identity"]
    by_pending = own | {"analyzer": ["pending key"]}
    case(
        "a pending identity becomes the active one",
        [believed, _signed(announced, own), _signed(active, by_pending)],
        active,
    )

    operator = {"organisation": "Institute B", "administrator": "Bo", "host": "b.example"}
    every = (
        _first()
        | {"operator": operator}
        | {"gateway": "https://gateway.example", "approvals": 1, "minimum_version": "0.1"}
    )
    every |= {"version": 3, "previous": "cd" * 32, "participant_pages": ["ab" * 32]}
    every["privacy_limit"] |= {"max_rounds": 3, "fixed_terms": True}
    gone = {"identity": _identity("old"), "valid_until": "2026-01-02T03:04:05Z", "compromised": True}
    pending = {"pending_identity": _identity("pending key"), "pending_tls_certificate": _CERTIFICATE}
    for number, entry in enumerate(every["services"], start=1):
        entry["organisation"] = f"Clinic {number}"
    every["services"][0] |= {"administrator": "Ada", "retired_identities": [gone], **pending}
    case("every line is there", [_signed(every, own)], every)

    for name in NAMES:
        wrong(
            f"{name} has not signed", _next(first), {service: keys for service, keys in own.items() if service != name}
        )
    wrong("the new key has not signed", rotated)
    wrong("the old key has not agreed", rotated, own | {"shuffler-2": ["another key"]})
    case("not all have signed the first", [_signed(first, {"analyzer": ["analyzer"]})], None)
    wrong("signed in another's name", _next(first), own | {"analyzer": [], "accountant": ["accountant", "analyzer"]})
    other = _signed(_next(first), own)
    other["statement"] = other["statement"].replace("clinic", "clinix")
    case("other bytes than those that were signed", [believed, other], None)
    wrong("another version before", _next(first, previous="ab" * 32))
    wrong("no version before", {name: value for name, value in _next(first).items() if name != "previous"})
    wrong("a version is left out", _next(first, version=3))
    wrong("the same version again", _next(first, version=1))
    wrong("a version that is not a number", _next(first, version="2"))
    case("an earlier version again", [second, believed], None)
    case("a version between is missing", [believed, _signed(page, now)], None)
    wrong("another deployment", _next(first, name="clinix"))
    wrong("the shufflers change places", _next(first, services=[first["services"][place] for place in (1, 0, 2, 3)]))
    fewer = {name: [name] for name in NAMES if name != "shuffler-2"}
    wrong("a service is gone", _next(first, services=[first["services"][place] for place in (0, 2, 3)]), fewer)
    wrong("no services", _next(first, services=[]))
    wrong("a field that nobody knows", _next(first, more=1))
    named = _next(first, operator=operator)
    case("a version that says who the operator is", [believed, _signed(named, own)], named)
    wrong("the operator has a field that nobody knows", _next(first, operator=operator | {"more": "1"}))
    wrong("a page that is not a hash", _next(first, participant_pages=["ab"]))
    wrong("a limit without a delta", _next(first, privacy_limit={"total_epsilon": 1.0}))
    wrong("a limit of nothing", _next(first, privacy_limit={"total_epsilon": 0.0, "total_delta": 1e-06}))
    wrong("a limit with too large a delta", _next(first, privacy_limit={"total_epsilon": 1.0, "total_delta": 0.2}))

    retired = _entry(rotated, "shuffler-2")["retired_identities"]
    changed("a retired identity is gone", retired_identities=None)
    changed(
        "a retired identity is believed for longer",
        retired_identities=[retired[0] | {"valid_until": "2027-01-02T03:04:05Z"}],
    )
    changed("a retired identity is believed in every round", retired_identities=[{"identity": retired[0]["identity"]}])
    changed("a retired identity has a field that nobody knows", retired_identities=[retired[0] | {"more": 1}])
    changed("the active identity is gone", identity=_identity("third key"))
    changed("an identity is listed twice", pending_identity=retired[0]["identity"])
    changed("an identity is not a key", pending_identity="ab")
    changed("a service has a field that nobody knows", more="1")
    changed("a role that nobody knows", role="dealer")
    trusted = _next(compromised)
    del _entry(trusted, "shuffler-2")["retired_identities"][0]["compromised"]
    before = [believed, second, _signed(compromised, now)]
    case("a compromised identity is believed again", [*before, _signed(trusted, now)], None)
    small = copy.deepcopy(first)
    _entry(small, "analyzer")["identity"] = (
        "01" + "00" * 31
    )  # every message has the signature that is all zeros but R = 1
    document = _signed(small, {name: [name] for name in NAMES if name != "analyzer"})
    document["signatures"].append({"signer": "analyzer", "identity": "01" + "00" * 31, "signature": "01" + "00" * 63})
    case("an identity of small order", [document], None)
    return {"cases": cases, "signed": signed}
