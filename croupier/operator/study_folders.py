"""Where the operator keeps the descriptions of a study, which `study.versions` writes."""

from __future__ import annotations

import json
from pathlib import Path

from croupier.protocol.deployment import OPERATOR
from croupier.protocol.studies import Study
from croupier.protocol.v1 import messages_pb2 as pb


def studies_folder(directory: Path, study_id: str = "") -> Path:
    """Returns the operator's folder of a study, or of all studies."""
    return directory / OPERATOR / "studies" / study_id


def kept_studies(directory: Path) -> list[str]:
    """Returns the names of the studies that were begun from this directory, in the order of the alphabet."""
    return sorted(file.parent.name for file in studies_folder(directory).glob("*/v1.study"))


def described_versions(directory: Path, study_id: str) -> dict[Path, Study]:
    """Returns the descriptions of all versions of a study by their files, oldest first; none if it was not begun."""
    files = studies_folder(directory, study_id).glob("v*.study") if study_id else []
    ordered = sorted(files, key=lambda file: int(file.stem[1:]))
    return {file: Study.read(pb.Study.FromString(bytes.fromhex(file.read_text()))) for file in ordered}


def title_of(description: Path) -> str:
    """Returns the title in the file that a version, given by the file of its description, was made from."""
    return str(json.loads(description.with_suffix(".json").read_text(encoding="utf-8"))["title"])
