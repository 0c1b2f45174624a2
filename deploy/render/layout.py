"""One description of a deployment: which service runs on which host, at which ports, within which limits.

`croupier init` renders compose files and settings from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from croupier.protocol.deployment import OPERATOR
from croupier.protocol.names import HostName

HOME = "/var/lib/croupier"
"""Where a service finds deployment.toml, and its own directory below."""
FIRST_PORT = 7100
"""The first port of the first service of a machine, unless the layout gives another."""
_PORTS_EACH = 10
"""The number of ports set aside for each service of a machine."""
Manager = Literal["systemd", "compose"]
"""What starts a service and watches it."""


class _HasRole(Protocol):
    @property
    def role(self) -> str: ...


AnyService = TypeVar("AnyService", bound=_HasRole)
_NAME = r"^[a-z][a-z0-9-]{0,62}$"
_HOST = r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$"
_Name = Annotated[str, StringConstraints(pattern=_NAME)]
_Host = Annotated[str, StringConstraints(pattern=_HOST)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Place(_Strict):
    """One service on its host.

    Attributes:
        service: its name in the deployment.
        role: what it does.
        host: where peers and the operator reach it.
        public_host: where clients reach it, if that is another name of the host.
        takes_clients: whether it has a port for clients: hop 1, the accountant and the analyzer have.
        first_port: for peers; the next three are for clients, and in plaintext for health and for metrics.
    """

    service: _Name
    role: Literal["shuffler", "accountant", "analyzer"]
    host: _Host
    public_host: _Host | None = None
    takes_clients: bool
    first_port: Annotated[int, Field(ge=1024, le=65532)] = FIRST_PORT

    @property
    def address(self) -> str:
        """Where peers and the operator call."""
        return f"{self.host}:{self.first_port}"

    @property
    def public_address(self) -> str | None:
        """Where clients call, if they do."""
        return f"{self.public_host or self.host}:{self.first_port + 1}" if self.takes_clients else None

    @property
    def hosts(self) -> tuple[HostName, ...]:
        """The names by which it is reached, each once."""
        return tuple(dict.fromkeys(map(HostName, (self.host, self.public_host or self.host))))


class GatewayPlace(_Strict):
    """Where the gateway is: clients call it over HTTPS.

    Attributes:
        host: by the name that clients know, and that its certificate is for.
        port: where they call it.
    """

    host: _Host
    port: Annotated[int, Field(ge=1, le=65535)] = 443

    @property
    def url(self) -> str:
        """What clients give as --gateway."""
        return f"https://{self.host}" + (f":{self.port}" if self.port != 443 else "")


class Layout(_Strict):
    """A whole deployment. Shufflers are chained in the order in which they stand. A gateway is optional."""

    name: _Name
    places: tuple[Place, ...]
    gateway: GatewayPlace | None = None
    image: str = Field(default_factory=lambda: f"croupier:{version('croupier')}")

    @model_validator(mode="after")
    def _check(self) -> Layout:
        taken = [(place.host, place.first_port // _PORTS_EACH) for place in self.places]
        if len(set(taken)) != len(taken):
            raise ValueError(f"two services want the same ports of one host: {taken}")
        return self

    @staticmethod
    def of(name: str, shufflers: Sequence[str], accountant: str, analyzer: str, gateway: str = "") -> Layout:
        """Returns a deployment on the given hosts; services that share one have ports of their own.

        Args:
            name: of the deployment.
            shufflers: a host for each hop, in the order of the chain: "HOST", or "HOST,PUBLIC" where clients
                know the host by another name.
            accountant: such a host.
            analyzer: such a host.
            gateway: "HOST" or "HOST:PORT" of a gateway, as clients know it; none if empty.

        Raises:
            ValueError: a name or a host that cannot be one, or a public host where clients do not call.
        """
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"name is {name!r}; it must be a letter and at most 62 more of a-z, 0-9 and '-'")
        wanted = [(f"shuffler-{hop}", "shuffler", host) for hop, host in enumerate(shufflers, 1)]
        wanted += [("accountant", "accountant", accountant), ("analyzer", "analyzer", analyzer)]
        places: list[Place] = []
        for service, role, where in wanted:
            host, _, public = where.partition(",")
            takes_clients = role != "shuffler" or service == "shuffler-1"
            for given in (host, public or host):
                if not re.fullmatch(_HOST, given):
                    raise ValueError(f"host is {given!r}; it must be a host's name or its IPv4 address")
            if public and not takes_clients:
                raise ValueError(f"{service} has the public host {public!r}; clients call hop 1 only")
            before = sum(place.host == host for place in places)
            places.append(
                Place.model_validate(
                    {
                        "service": service,
                        "role": role,
                        "host": host,
                        "public_host": public or None,
                        "takes_clients": takes_clients,
                        "first_port": FIRST_PORT + _PORTS_EACH * before,
                    }
                )
            )
        return Layout(name=name, places=tuple(places), gateway=_gateway(gateway) if gateway else None)

    @property
    def hosts(self) -> dict[HostName, tuple[Place, ...]]:
        """The services of every host; there may be none on that of the gateway."""
        reached = [place.host for place in self.places] + ([self.gateway.host] if self.gateway else [])
        names = dict.fromkeys(map(HostName, reached))
        return {name: tuple(place for place in self.places if place.host == name) for name in names}


def together(roles: Mapping[str, str], shared: str, who: str) -> str:
    """Returns a sentence about what somebody could do who holds several services.

    Args:
        roles: of the services, by their names.
        shared: what the services have in common.
        who: holds them.
    """
    *others, last = roles
    names = f"{', '.join(others)} and {last}"
    could = []
    if list(roles.values()).count("shuffler") > 1:
        could.append("shufflers with one administrator are one shuffler")
    if {"accountant", "analyzer"} <= set(roles.values()):
        could.append(f"{who} can read reports before they are certified")
    if {"accountant", OPERATOR} <= set(roles.values()):
        could.append(f"{who} can enrol invented people and certify rounds in which people hide among these")
    return f"{names} share {shared}: " + (
        "; ".join(could) or f"{who} sees what {'both' if len(roles) == 2 else 'all'} see"
    )


def _gateway(where: str) -> GatewayPlace:
    host, _, port = where.partition(":")
    if (
        not re.fullmatch(_HOST, host)
        or not re.fullmatch("[0-9]{1,5}", port or "443")
        or not 0 < int(port or 443) < 2**16
    ):
        raise ValueError(f"gateway is {where!r}; it must be HOST or HOST:PORT, as clients know it")
    return GatewayPlace(host=host, port=int(port or 443))


def called_by(services: Sequence[AnyService], caller: AnyService) -> tuple[AnyService, ...]:
    """Returns the services of a deployment that one of them calls.

    Lanes go from hop to hop and then to accountant and analyzer; these two call each other about tickets and the
    release; every hop asks the accountant for tickets for its fake reports, hop 1 also in sequential rounds; and hop 1
    asks all hops for their inclusion lists.

    Args:
        services: all, the shufflers in the order of the chain.
        caller: one of them.
    """
    hops = [service for service in services if service.role == "shuffler"]
    ends = [service for service in services if service.role != "shuffler"]
    if caller not in hops:
        return tuple(end for end in ends if end != caller)
    called = list(hops[1:]) if caller == hops[0] else hops[hops.index(caller) + 1 :][:1]
    if caller == hops[-1]:
        called += ends
    else:
        called += [end for end in ends if end.role == "accountant"]
    return tuple(called)
