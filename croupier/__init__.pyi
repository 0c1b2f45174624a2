from croupier.accountant import *
from croupier.client.limits import Limits as Limits
from croupier.deploy.local.discovering import discover as discover
from croupier.deploy.local.simulation import SimulatedQuestion as SimulatedQuestion
from croupier.deploy.local.simulation import Simulation as Simulation
from croupier.deploy.local.simulation import simulate as simulate
from croupier.protocol.codes import Assumption as Assumption
from croupier.protocol.codes import Method as Method
from croupier.protocol.codes import Note as Note
from croupier.protocol.codes import ProofStep as ProofStep
from croupier.protocol.codes import RefusalReason as RefusalReason
from croupier.protocol.errors import Code as Code
from croupier.protocol.errors import CroupierError as CroupierError
from croupier.protocol.errors import LimitError as LimitError
from croupier.protocol.errors import NotCertifiedError as NotCertifiedError
from croupier.protocol.errors import NotIncludedError as NotIncludedError
from croupier.protocol.errors import OtherPersonError as OtherPersonError
from croupier.protocol.errors import Refusal as Refusal
from croupier.protocol.errors import SignatureError as SignatureError
from croupier.protocol.errors import TicketError as TicketError
from croupier.protocol.errors import UnreachableError as UnreachableError
from croupier.protocol.rules import Prefixes as Prefixes
from croupier.protocol.statements import Statement as Statement
from croupier.show.explanation import Explanation as Explanation
from croupier.show.explanation import explain as explain
from croupier.study.discovery import DiscoveryResult as DiscoveryResult

from .client.async_client import AsyncClient as AsyncClient
from .client.round_client import AsyncClientRound as AsyncClientRound
from .client.round_result import Inclusion as Inclusion
from .client.round_result import Receipt as Receipt
from .client.round_result import ResultValue as ResultValue
from .client.round_result import RoundResult as RoundResult
from .client.sync_client import Client as Client
from .client.sync_client import ClientRound as ClientRound
from .client.sync_client import connect as connect

__version__: str
