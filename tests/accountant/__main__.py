"""`make hunt`: looks for a certificate below the truth, or a call without an answer, with a new seed each time.

python -m tests.accountant [--minutes 60] [--factor 10] [--workers 2] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time

_TESTS = [
    "tests/accountant/test_every_setting_is_answered.py",
    "tests/accountant/test_hunt.py",
    "tests/accountant/test_certificates_against_attacks.py",
    "tests/accountant/test_certificates_in_order.py",
    "tests/accountant/attacks/test_lower_bound.py",
    "tests/accountant/bounds/test_exchange_binary.py",
    "tests/accountant/bounds/test_exchange_laplace.py",
    "tests/accountant/bounds/test_split_laws.py",
    "tests/accountant/bounds/test_noise_sums.py",
    "tests/accountant/bounds/test_two_groups.py",
    "tests/accountant/bounds/test_exchange_lattice.py",
    "tests/accountant/bounds/test_finite_reports.py",
    "tests/accountant/bounds/test_density_blanket.py",
    "tests/accountant/test_composition.py",
    "tests/accountant/test_certified_profile.py",
    "tests/accountant/test_planner.py",
]
_PASSED = re.compile(r"(\d+) passing\b")


def _main(arguments: argparse.Namespace) -> int:
    end = time.monotonic() + 60 * arguments.minutes
    total = turns = 0
    while not turns or (time.monotonic() < end and not arguments.seed):
        turns += 1
        seed = arguments.seed or secrets.randbelow(1 << 31) + 1
        sys.stdout.write(f"seed {seed} ...\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", str(arguments.workers), "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, f"--hypothesis-seed={seed}", "--hypothesis-show-statistics", *_TESTS],
            env={**os.environ, "CROUPIER_HUNT": str(arguments.factor)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.stdout.write(f"{done.stdout}\nseed {seed}, factor {arguments.factor}: FAILED, see above\n")
            return 1
        total += sum(map(int, _PASSED.findall(done.stdout)))
        left = max(0.0, end - time.monotonic()) / 60
        sys.stdout.write(
            f"seed {seed}: no certificate is below the truth; {total:,} settings so far, {left:.0f} min left\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.accountant", description="Hunts for a wrong certificate.")
    parser.add_argument("--minutes", type=float, default=60, help="no new turn begins after this time")
    parser.add_argument("--factor", type=int, default=10, help="how many times as many settings as 'make test'")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side")
    parser.add_argument("--seed", type=int, default=0, help="one turn with this seed")
    sys.exit(_main(parser.parse_args()))
