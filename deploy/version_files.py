"""The versions of the deployment file in a directory, of a service or of an organisation.

DIR/deployment.toml        the newest version that all have signed: what services and clients read
DIR/versions/N.toml        every version that was installed here
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path

from croupier.deploy.directory import read_deployment
from croupier.protocol.deployment import DEPLOYMENT_FILE, Deployment, SignedFile, load_deployment, read_unchecked

VERSIONS = "versions"


def newest(directory: Path) -> Deployment | None:
    """Returns the installed version; None before the first.

    Raises:
        ValueError: its file cannot be used.
    """
    return read_deployment(directory) if (directory / DEPLOYMENT_FILE).exists() else None


def last_signed(directory: Path) -> Deployment | None:
    """Returns the newest version that all have signed, also where the deployment file was edited since.

    Returns None before the first signature: of a new deployment, and of one that was made before files were signed.

    Raises:
        ValueError: a file cannot be used.
    """
    file = directory / DEPLOYMENT_FILE
    if file.exists() and not (installed := read_unchecked(file)).not_signed_by():
        return installed
    kept = _kept_files(directory)
    return load_deployment(kept[max(kept)]) if kept else None


def _kept_files(directory: Path) -> dict[int, Path]:
    return {int(file.stem): file for file in (directory / VERSIONS).glob("*.toml") if file.stem.isdecimal()}


def kept_versions(directory: Path, after: int = 0) -> list[Deployment]:
    """Returns the versions after a number that lie in a directory, in their order.

    Raises:
        ValueError: a file cannot be used.
    """
    versions = {number: load_deployment(file) for number, file in _kept_files(directory).items() if number > after}
    current = newest(directory)
    if current is not None and current.version > after:
        versions[current.version] = current
    return [versions[number] for number in sorted(versions)]


def install(directory: Path, deployment: Deployment) -> None:
    """Replaces the installed version by one that all have signed, and keeps it.

    Raises:
        ValueError: a service has not signed it.
        OSError: the directory cannot be written.
    """
    if missing := deployment.not_signed_by():
        raise ValueError(f"version {deployment.version} is not signed by {', '.join(missing)}")
    before = last_signed(directory)
    if before == deployment and newest(directory) == deployment:
        return  # readers wait until a file has stopped changing
    (directory / VERSIONS).mkdir(exist_ok=True)
    for version in filter(None, (before, deployment)):
        write_deployment(directory / VERSIONS, version, f"{version.version}.toml")
    write_deployment(directory, deployment)


def write_deployment(directory: Path, deployment: Deployment, name: str = DEPLOYMENT_FILE) -> None:
    """Writes the deployment file, in place of an older one in a single step; comments in that one are not kept."""
    write_signed(directory / name, deployment)


def write_signed(path: Path, file: SignedFile) -> None:
    """Writes a file that organisations sign together, in place of an older one in a single step."""
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as text:
        text.write(signed_text(file))
        text.flush()
        os.fsync(text.fileno())
    give_to_owner(fresh)
    fresh.replace(path)


def signed_text(file: SignedFile) -> str:
    """Returns the contents of a file that organisations sign together, such as the deployment file."""
    tables = ("services", "signatures")
    lines = toml_lines(file.model_dump(exclude={*tables}, exclude_none=True))
    for table in tables:
        for entry in getattr(file, table, ()):
            lines += ["", f"[[{table}]]", *toml_lines(entry.model_dump(exclude_none=True))]
    return "\n".join(lines) + "\n"


def toml_lines(table: Mapping[str, object]) -> list[str]:
    """Returns the lines of a table of strings, numbers, times and lists of those; sub-tables are put inline."""
    return [f"{key} = {_toml_value(value)}" for key, value in table.items() if value not in ((), "")]


def _toml_value(value: object) -> str:
    if isinstance(value, str):
        return f"'''\n{value}'''" if "\n" in value else json.dumps(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return "{" + ", ".join(toml_lines(value)) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)


def give_to_owner(path: Path) -> None:
    """Has a file that root has made belong to the owner of its directory: services run as users of their own."""
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
