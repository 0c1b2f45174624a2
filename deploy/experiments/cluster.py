"""A Dask cluster that points are measured on. What travels is executable, so both sides must show certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cluster"]

_PATIENCE_S = 30


@dataclass(frozen=True)
class Cluster:
    """Where a scheduler is, and what this side shows it.

    Attributes:
        scheduler: its address, "tls://HOST:PORT".
        ca: the authority that certifies scheduler, workers and clients, PEM.
        certificate: of this client, PEM.
        key: the private key of that, PEM.

    Raises:
        ValueError: at construction; another address, or a file that does not exist.
    """

    scheduler: str
    ca: Path
    certificate: Path
    key: Path

    def __post_init__(self) -> None:
        """Checks address and files."""
        if not self.scheduler.startswith("tls://"):
            raise ValueError(f"scheduler is {self.scheduler!r}; it must be tls://HOST:PORT")
        for file in (self.ca, self.certificate, self.key):
            if not file.is_file():
                raise ValueError(f"{file} does not exist")

    @contextmanager
    def executor(self, sources: Callable[[], str]) -> Iterator[Executor]:
        """Yields what runs functions on the workers.

        Args:
            sources: returns a digest of the code that measures; on every worker it must be the same as here.

        Raises:
            RuntimeError: the scheduler is out of reach, there is no worker, or one has other code.
        """
        from distributed import Client, Security

        security = Security(
            require_encryption=True,
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
        )
        try:
            client = Client(self.scheduler, security=security, timeout=_PATIENCE_S)
        except OSError as error:
            raise RuntimeError(f"the scheduler {self.scheduler} is out of reach: {error}") from error
        with client:
            digests = client.run(sources)
            if not digests:
                raise RuntimeError(f"the scheduler {self.scheduler} has no worker")
            other = [worker for worker, digest in digests.items() if digest != sources()]
            if other:
                raise RuntimeError(f"{other[0]} has another version of croupier than this machine")
            with client.get_executor() as executor:
                yield executor
