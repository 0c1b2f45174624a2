"""The accountant: the guarantee of a shuffled release of locally randomised reports, proved at the actual n.

A library first: `from croupier import certify` needs numpy and scipy, and neither gRPC nor storage. Names are listed in
`__init__.pyi` and loaded when they are first used. The mathematics is in docs/accounting.md.

    >>> from croupier import BinaryRandomizedResponse, certify
    >>> round(certify([1.0] * 10_000, BinaryRandomizedResponse(), delta=1e-6).epsilon, 4)
    0.0357
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
