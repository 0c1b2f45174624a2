"""Writes `longest.json`, by which `make test` knows long tests: `make long`, then `python -m tests.longest`."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
FROM_S = 2.0
"""Shorter tests are not in the file: `make test` runs all of them, and their order hardly matters."""


def main() -> None:
    durations = json.loads((ROOT / ".pytest_cache" / "v" / "croupier" / "durations").read_text(encoding="utf-8"))
    longest = {name: round(seconds, 1) for name, seconds in durations.items() if seconds >= FROM_S}
    ordered = dict(sorted(longest.items(), key=lambda entry: (-entry[1], entry[0])))
    (ROOT / "tests" / "longest.json").write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
