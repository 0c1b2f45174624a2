"""A nightly job that answers for the people in a file, many at a time, and can be started again.

    python examples/batch_job.py deployment.toml people.csv

people.csv has the columns name, answer, max_local_epsilon and link; `croupier invite` adds the last. The person who
runs the job sees the answers. It prints what became of every person; those whose answer is in are skipped when it runs
again.
"""

import asyncio
import csv
import sys
from pathlib import Path

import croupier

AT_ONCE = 20


async def answer_for_all(client: croupier.AsyncClient, people: list[dict[str, str]]) -> dict[str, str]:
    """Returns what became of each person's answer to the newest round."""
    asked = await client.round()
    some = asyncio.Semaphore(AT_ONCE)

    async def answer_for(person: dict[str, str]) -> str:
        async with some:
            try:
                receipt = await asked.submit(
                    person["answer"],
                    float(person["max_local_epsilon"]),
                    person=person["name"],
                    invitation=person["link"],
                )
            except (ValueError, croupier.CroupierError) as error:
                return str(error)
            return f"counted, local ε {receipt.local_epsilon:g}, local δ {receipt.local_delta:g}"

    outcomes = await asyncio.gather(*map(answer_for, people))
    return {person["name"]: outcome for person, outcome in zip(people, outcomes, strict=True)}


async def main(deployment: str, file: Path) -> None:
    """Runs the job once."""
    with file.open(newline="", encoding="utf-8") as rows:
        people = list(csv.DictReader(rows))
    async with croupier.AsyncClient(deployment) as client:
        for name, outcome in (await answer_for_all(client, people)).items():
            print(f"{name}: {outcome}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
