"""Access: who is told by which token, and what of it is written down."""

import os
import stat
from pathlib import Path

import pytest

from voda.auth.callers import Caller
from voda.auth.tokens import Authenticator
from voda.clock import SystemClock, VirtualClock
from voda.domain.errors import AlreadyExists, InvalidInput, NotFound, Unauthorized

CLOCK = VirtualClock(1_700_000_000.0)


def an_access(folder: Path) -> Authenticator:
    return Authenticator.open(folder, CLOCK)


def test_admin_token_when_opened_twice_is_written_once_for_its_owner_alone(tmp_path: Path) -> None:
    an_access(tmp_path)
    token = (tmp_path / "admin.token").read_text()
    again = an_access(tmp_path)
    assert (tmp_path / "admin.token").read_text() == token
    assert token.startswith("voda_")
    assert stat.S_IMODE(os.stat(tmp_path / "admin.token").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "secret").st_mode) == 0o600
    assert again.identify(token.strip()).role == "admin"


def test_token_when_made_is_known_by_its_hash_alone(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    token = access.add("anna", "user")
    who = access.identify(token)
    assert (who.user, who.role) == ("anna", "user")
    assert token not in (tmp_path / "tokens.json").read_text()
    assert stat.S_IMODE(os.stat(tmp_path / "tokens.json").st_mode) == 0o600
    assert [(known.name, known.role) for known in access.list()] == [("anna", "user")]


def test_admins_are_known_by_name(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, CLOCK, admin="eve")
    access.add("anna", "user")
    access.add("kay", "admin")
    assert [access.is_admin(name) for name in ("eve", "anna", "kay", "")] == [True, False, True, False]
    assert [Authenticator.none(admin="eve").is_admin(name) for name in ("eve", "kay")] == [True, False]


def test_token_when_revoked_by_another_process_is_refused_at_once(tmp_path: Path) -> None:
    serving, other = an_access(tmp_path), an_access(tmp_path)
    token = other.add("anna", "viewer")
    assert serving.identify(token).user == "anna"
    other.remove("anna")
    with pytest.raises(Unauthorized, match="revoked"):
        serving.identify(token)


def test_tokens_when_their_file_is_damaged_let_nobody_in_but_the_admin(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    token = access.add("anna", "user")
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(Unauthorized):
        access.identify(token)
    assert access.identify((tmp_path / "admin.token").read_text().strip()).user == "admin"
    with pytest.raises(InvalidInput, match="does not hold tokens"):
        an_access(tmp_path)


@pytest.mark.parametrize("token", [None, "", "voda_", "voda_guess", "vjob_", "vjob_a.", "é", "\udc80", "x" * 100_000])
def test_identify_when_the_token_is_foreign_is_refused(tmp_path: Path, token: str | None) -> None:
    with pytest.raises(Unauthorized):
        an_access(tmp_path).identify(token)


def test_job_token_when_shown_stands_for_its_job_alone_also_after_a_restart(tmp_path: Path) -> None:
    token = an_access(tmp_path).job_token("digits-2")
    who = an_access(tmp_path).identify(token)
    assert (who.role, who.job_id) == ("job", "digits-2")
    with pytest.raises(Unauthorized, match="this job token is unknown"):
        an_access(tmp_path).identify(token.replace("digits-2", "digits-3"))


def test_job_token_when_from_another_folder_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    token = an_access(tmp_path / "one").job_token("a")
    with pytest.raises(Unauthorized):
        an_access(tmp_path / "other").identify(token)


def test_add_when_the_user_has_a_token_or_no_name_is_refused(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    access.add("anna", "user")
    with pytest.raises(AlreadyExists, match="revoke it first"):
        access.add("anna", "admin")
    with pytest.raises(AlreadyExists):
        access.add("admin", "admin")
    for name in ("", "Anna", "a b", "../a", "a\n", "x" * 64):
        with pytest.raises(InvalidInput, match="user's name"):
            access.add(name, "user")


def test_remove_when_nobody_has_that_name_tells_who_has_tokens(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    access.add("anna", "user")
    with pytest.raises(NotFound, match="tokens of anna"):
        access.remove("bob")


def test_none_lets_everybody_in_as_admin() -> None:
    access = Authenticator.none()
    assert access.identify(None).role == "admin"
    assert access.identify(access.job_token("a")).role == "admin"


def test_secret_when_left_empty_by_a_full_disk_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"")
    access = an_access(tmp_path)
    assert access.identify(access.job_token("a")).job_id == "a"
    assert (tmp_path / "secret").read_text().strip()


# ---- mounted, for several replicas


def made_elsewhere(folder: Path) -> dict[str, str]:
    """Return the content of the files of a data folder, and the tokens of anna and the admin."""
    folder.mkdir()
    token = an_access(folder).add("anna", "user")
    files = {name: (folder / name).read_text() for name in ("secret", "admin.token", "tokens.json")}
    return {**files, "anna": token, "admin": files["admin.token"].strip()}


def mount(volume: Path, files: dict[str, str], *, number: int = 1) -> None:
    """Show the files in the volume as a kubelet does: in a new folder, reached by links that are swapped at once."""
    data = volume / f"..{number}"
    data.mkdir(parents=True)
    for name in ("secret", "admin.token", "tokens.json"):
        if name in files:
            (data / name).write_text(files[name])
            (data / name).chmod(0o444)
            if not (volume / name).is_symlink():
                (volume / name).symlink_to(Path("..data") / name)
    (volume / "..new").symlink_to(data.name)
    os.replace(volume / "..new", volume / "..data")


def test_replicas_that_mount_the_same_folder_know_the_same_tokens(tmp_path: Path) -> None:
    made = made_elsewhere(tmp_path / "made")
    mount(tmp_path / "volume", made)
    one, other = (Authenticator.mounted(tmp_path / "volume", SystemClock()) for _ in range(2))
    assert one.identify(other.job_token("a")).job_id == "a"
    assert (one.identify(made["anna"]).user, one.identify(made["admin"]).role) == ("anna", "admin")
    assert {file.name for file in (tmp_path / "volume").iterdir()} == {
        "..1",
        "..data",
        "secret",
        "admin.token",
        "tokens.json",
    }


def test_mounted_files_when_replaced_hold_at_once(tmp_path: Path) -> None:
    first, second = made_elsewhere(tmp_path / "first"), made_elsewhere(tmp_path / "second")
    mount(tmp_path / "volume", first)
    access = Authenticator.mounted(tmp_path / "volume", SystemClock())
    job = access.job_token("a")
    mount(tmp_path / "volume", second, number=2)
    assert (access.identify(second["anna"]).user, access.identify(second["admin"]).role) == ("anna", "admin")
    for gone in (first["anna"], first["admin"], job):
        with pytest.raises(Unauthorized):
            access.identify(gone)
    assert access.job_token("a") == an_access(tmp_path / "second").job_token("a")


@pytest.mark.parametrize("name", ["secret", "admin.token"])
@pytest.mark.parametrize("content", [None, "", "\n", "too short"])
def test_mounted_folder_when_a_secret_is_missing_or_guessable_is_refused(
    tmp_path: Path, name: str, content: str | None
) -> None:
    made = made_elsewhere(tmp_path / "made")
    del made[name]
    mount(tmp_path / "volume", made if content is None else {**made, name: content})
    with pytest.raises(InvalidInput, match=f"{name}: expected at least 32 characters"):
        Authenticator.mounted(tmp_path / "volume", SystemClock())


def test_mounted_secret_when_emptied_while_serving_leaves_the_former_one(tmp_path: Path) -> None:
    made = made_elsewhere(tmp_path / "made")
    mount(tmp_path / "volume", made)
    access = Authenticator.mounted(tmp_path / "volume", SystemClock())
    mount(tmp_path / "volume", {**made, "secret": ""}, number=2)
    assert access.identify(made["admin"]).role == "admin"
    assert access.identify(access.job_token("a")).job_id == "a"


def test_mounted_folder_without_tokens_of_users_lets_the_admin_in(tmp_path: Path) -> None:
    made = made_elsewhere(tmp_path / "made")
    del made["tokens.json"]
    mount(tmp_path / "volume", made)
    access = Authenticator.mounted(tmp_path / "volume", SystemClock())
    assert access.identify(made["admin"]).role == "admin"
    with pytest.raises(Unauthorized):
        access.identify(made["anna"])


def test_mounted_tokens_are_changed_where_they_were_made(tmp_path: Path) -> None:
    mount(tmp_path / "volume", made_elsewhere(tmp_path / "made"))
    access = Authenticator.mounted(tmp_path / "volume", SystemClock())
    for change in (lambda: access.add("bob", "user"), lambda: access.remove("anna")):
        with pytest.raises(InvalidInput, match="is mounted"):
            change()


def test_admin_of_a_single_user_service_has_the_name_of_that_user(tmp_path: Path) -> None:
    access = Authenticator.open(tmp_path, VirtualClock(0.0), admin="ada")
    token = (tmp_path / "admin.token").read_text().strip()
    assert access.identify(token) == Caller(user="ada", role="admin", found_by="token")
    assert Authenticator.none(admin="ada").identify(None) == Caller(user="ada", role="admin", found_by="no tokens")
