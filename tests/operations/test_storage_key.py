"""The storage key of a service changes while a round is under way; the round goes on, and the old key opens nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.operator import storage_key
from croupier.operator.keys import replace_secret
from croupier.operator.storage_key import NEXT_STORAGE_KEY, rotate_storage_key
from croupier.runtime.service_directory import load_secrets
from tests.support import BIT, settings
from tests.support.command_line import croupier
from tests.support.messages import naming
from tests.support.rounds import people, table


@pytest.mark.slow
@pytest.mark.virtual_time
async def test_a_round_goes_on_under_a_new_storage_key(tmp_path: Path) -> None:
    async with table(tmp_path, 1) as at:
        home = at.inside.directory
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        for name in at.deployment.chain:
            before = load_secrets(home / name)
            await at.inside.stop(name)
            old_files = {file: file.read_bytes() for file in (home / name).glob("*.key")}
            croupier("rotate", name, "--storage-key", "--dir", home)
            after = load_secrets(home / name)
            assert after.storage_key != before.storage_key
            assert (after.identity_key, after.tls_key) == (before.identity_key, before.tls_key)
            assert all(file.read_bytes() != content for file, content in old_files.items())
            assert not (home / name / NEXT_STORAGE_KEY).exists()
            await at.inside.start(name)
        publication, _ = await at.finish(terms)
        assert publication.num_reports == 30


@pytest.mark.virtual_time
async def test_a_change_that_was_cut_short_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with table(tmp_path, 1) as at:
        own = at.inside.directory / "accountant"
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        await at.inside.stop("accountant")
        for survived in (0, 1, 1):  # before identity.key, tls.key and storage.key: what is done is not done again
            left = [survived]

            def cut_short(path: Path, content: str, left: list[int] = left) -> None:
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
                replace_secret(path, content)

            with monkeypatch.context() as patched:
                patched.setattr(storage_key, "replace_secret", cut_short)
                with pytest.raises(KeyboardInterrupt):
                    rotate_storage_key(at.inside.directory, "accountant")
            assert (own / NEXT_STORAGE_KEY).exists()
        assert rotate_storage_key(at.inside.directory, "accountant") is None
        await at.inside.start("accountant")
        publication, _ = await at.finish(terms)
        assert publication.num_reports == 30


@pytest.mark.virtual_time
async def test_a_storage_key_that_is_a_containers_secret_stays_on_the_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with table(tmp_path, 1) as at:
        own = at.inside.directory / "analyzer"
        await at.inside.stop("analyzer")
        monkeypatch.setenv("SAFE", (own / "storage.key").read_text())
        (own / "storage.key").unlink()
        (own / "service.toml").write_text('storage_key = "env:SAFE"\n')
        said = " ".join(croupier("rotate", "analyzer", "--storage-key", "--dir", at.inside.directory).stdout.split())
        assert "settings of analyzer" in said
        with pytest.raises(ValueError, match=naming("storage key")):
            load_secrets(own)
        monkeypatch.setenv("SAFE", (own / NEXT_STORAGE_KEY).read_text())
        (own / NEXT_STORAGE_KEY).unlink()
        await at.inside.start("analyzer")
        terms = await at.operator.open_round(settings())
        await at.submit(terms, people(BIT, 30, seed=1))
        publication, _ = await at.finish(terms)
        assert publication.num_reports == 30


async def test_a_service_that_runs_keeps_its_storage_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with table(tmp_path, 1, over_tls=True) as at:
        said = croupier("rotate", "analyzer", "--storage-key", "--dir", at.inside.directory, expect=2).stderr
        assert "in use by another process" in " ".join(said.split())
        assert not (at.inside.directory / "analyzer" / NEXT_STORAGE_KEY).exists()
