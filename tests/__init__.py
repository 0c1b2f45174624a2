"""The tests of each room; attacks, faults, fuzzing, load and integration have folders of their own.

Numerical libraries have one thread for each process: the workers of a run share the machine's cores.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
