from accountant import *

__version__: str
