"""What a job was submitted with is looked at with the rights of its user."""

import os
from pathlib import Path

import pytest

from tests.needs import needs
from tests.service import a_manifest
from voda.accounts import Account, account_of_uid
from voda.app.usable_paths import refuse_unusable
from voda.domain.errors import InvalidField
from voda.domain.job import JobSpec
from voda.manifests.parse import ParsedManifest, parse


def submitted_from(folder: Path | str) -> ParsedManifest:
    """Return a manifest whose program begins in a folder."""
    return parse(a_manifest(working_dir=str(folder)))


async def own(_spec: JobSpec) -> Account | None:
    return None


async def test_folder_when_it_is_not_there_or_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    await refuse_unusable(submitted_from(tmp_path), own)
    for folder in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(InvalidField, match=rf"^it would begin in {folder}, which is no folder that .* may enter"):
            await refuse_unusable(submitted_from(folder), own)


async def test_folder_when_it_is_relative_is_refused() -> None:
    with pytest.raises(InvalidField, match=r"working-dir\]: expected the absolute path of a folder, got 'here'$"):
        await refuse_unusable(submitted_from("here"), own)


@needs(os.geteuid() == 0, "only root starts processes of other users")
async def test_folder_of_another_user_is_refused_though_root_may_enter_it(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    os.mkdir(shut, 0o700)

    async def nobody(_spec: JobSpec) -> Account | None:
        return account_of_uid(65_534)

    with pytest.raises(InvalidField, match=r"no folder that nobody, as whom it runs, may enter"):
        await refuse_unusable(submitted_from(shut), nobody)
