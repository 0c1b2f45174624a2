from accountant import *
from client.limits import Limits as Limits
from protocol.errors import Code as Code
from protocol.errors import CroupierError as CroupierError
from protocol.errors import LimitError as LimitError
from protocol.errors import NotCertifiedError as NotCertifiedError
from protocol.errors import NotIncludedError as NotIncludedError
from protocol.errors import OtherPersonError as OtherPersonError
from protocol.errors import Refusal as Refusal
from protocol.errors import SignatureError as SignatureError
from protocol.errors import TicketError as TicketError
from protocol.errors import UnreachableError as UnreachableError

from .async_client import AsyncClient as AsyncClient
from .async_client import AsyncClientRound as AsyncClientRound
from .round_results import Inclusion as Inclusion
from .round_results import Receipt as Receipt
from .round_results import ResultValue as ResultValue
from .round_results import RoundResult as RoundResult
from .sync_client import Client as Client
from .sync_client import ClientRound as ClientRound
from .sync_client import connect as connect

__version__: str
