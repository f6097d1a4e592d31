"""Logins to the page: good once, for a minute, and for whom they were given alone."""

from pathlib import Path

import pytest

from voda.auth.callers import Caller
from voda.auth.tokens import Authenticator
from voda.clock import VirtualClock
from voda.domain.errors import NotAllowed, Unauthorized


def an_access(folder: Path, clock: VirtualClock | None = None) -> Authenticator:
    return Authenticator.open(folder, clock or VirtualClock(1_700_000_000.0))


def anna(access: Authenticator) -> Caller:
    return access.identify(access.add("anna", "viewer"))


def test_login_when_used_then_begins_a_session_of_the_same_caller(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    code, _ = access.login(anna(access))
    token, claim = access.begin_session(code)
    who = access.identify(token)
    assert (who.user, who.role, who.found_by) == ("anna", "viewer", "session")
    assert (claim.user, claim.role) == ("anna", "viewer")


def test_login_when_used_twice_is_refused(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    code, _ = access.login(anna(access))
    access.begin_session(code)
    with pytest.raises(Unauthorized, match="used before"):
        access.begin_session(code)


def test_login_when_a_minute_old_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock(1_700_000_000.0)
    access = an_access(tmp_path, clock)
    code, ends_at = access.login(anna(access))
    clock.move_to(ends_at + 1)
    with pytest.raises(Unauthorized, match="is over"):
        access.begin_session(code)


def test_session_when_its_time_is_over_is_refused(tmp_path: Path) -> None:
    clock = VirtualClock(1_700_000_000.0)
    access = an_access(tmp_path, clock)
    token, claim = access.begin_session(access.login(anna(access))[0])
    clock.move_to(claim.ends_at + 1)
    with pytest.raises(Unauthorized, match="this session is over"):
        access.identify(token)


def test_session_when_the_token_is_revoked_ends_with_it(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    token, _ = access.begin_session(access.login(anna(access))[0])
    access.remove("anna")
    with pytest.raises(Unauthorized, match="was revoked"):
        access.identify(token)
    access.add("anna", "admin")
    # It was a viewer's.
    with pytest.raises(Unauthorized):
        access.identify(token)


def test_session_when_its_user_has_a_new_token_of_the_role_ends_all_the_same(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    session, _ = access.begin_session(access.login(anna(access))[0])
    code, _ = access.login(access.identify(access.add("bob", "user")))
    access.remove("anna")
    access.add("anna", "viewer")
    access.remove("bob")
    access.add("bob", "user")
    for begun in (session, access.begin_session(code)[0]):
        with pytest.raises(Unauthorized, match="was revoked"):
            access.identify(begun)


def test_session_of_an_admin_ends_with_the_admins_token(tmp_path: Path) -> None:
    for name in ("secret", "admin.token"):
        (tmp_path / name).write_text(f"{name} " * 8)
    access = Authenticator.mounted(tmp_path, VirtualClock(1_700_000_000.0))
    admin = access.identify(("admin.token " * 8).strip())
    session, _ = access.begin_session(access.login(admin)[0])
    assert access.identify(session).role == "admin"
    (tmp_path / "admin.token").write_text("another token " * 8)
    with pytest.raises(Unauthorized, match="was revoked"):
        access.identify(session)


def test_session_of_a_local_user_needs_no_token(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    token, _ = access.begin_session(access.login(Caller(user="bob", role="user", found_by="socket"))[0])
    assert (access.identify(token).user, access.identify(token).role) == ("bob", "user")


def test_session_gives_no_login(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    token, _ = access.begin_session(access.login(anna(access))[0])
    with pytest.raises(NotAllowed, match="a session gives no login"):
        access.login(access.identify(token))


def test_session_when_read_by_a_replica_with_the_same_secret_is_known(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    token, _ = access.begin_session(access.login(anna(access))[0])
    assert an_access(tmp_path).identify(token).user == "anna"


@pytest.mark.parametrize("purpose", ["vlogin_", "vses_", "vjob_"])
def test_seals_when_shown_as_another_kind_are_refused(tmp_path: Path, purpose: str) -> None:
    access = an_access(tmp_path)
    code, _ = access.login(anna(access))
    session, _ = access.begin_session(code)
    job = access.job_token("a")
    for token in (code, session, job):
        content = token.partition("_")[2]
        if token.startswith(purpose):
            continue
        with pytest.raises(Unauthorized):
            access.identify(purpose + content)
        with pytest.raises(Unauthorized):
            access.begin_session(purpose + content)


@pytest.mark.parametrize("text", ["", "vlogin_", "vlogin_a.b", "é", "\udc80", ".", "x" * 100_000])
def test_login_when_it_is_none_is_refused(tmp_path: Path, text: str) -> None:
    access = an_access(tmp_path)
    with pytest.raises(Unauthorized):
        access.begin_session(text)
    with pytest.raises(Unauthorized):
        access.identify(f"vses_{text}")


def test_login_when_one_letter_is_another_is_refused(tmp_path: Path) -> None:
    access = an_access(tmp_path)
    code, _ = access.login(anna(access))
    place = code.index("_") + 5
    other = code[:place] + ("A" if code[place] != "A" else "B") + code[place + 1 :]
    with pytest.raises(Unauthorized):
        access.begin_session(other)
