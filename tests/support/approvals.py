"""Organisations that sign proposals."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from croupier.operator.carry_out import actions_proposal
from croupier.operator.proposals import Actions, read_actions
from croupier.protocol.deployment import Deployment


def approve_file(
    directory: Path, file: Path, deployment: Deployment, *, now: Callable[[], float] = time.time
) -> Actions:
    """Signs the actions in a file with the keys in a directory, as who has read it."""
    proposal = actions_proposal(directory, read_actions(file), deployment, file)
    proposal.check(now_s=now())
    signed = proposal.sign()
    signed.keep()
    return signed.file
