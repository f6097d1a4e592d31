"""Where a command asks the voda of a cluster, and what it says where it cannot. With the real kubectl: tests/e2e."""

from pathlib import Path

import pytest

from voda.cli.http.port_forward import reached
from voda.cli.options import ServerOptions
from voda.domain.errors import InvalidInput, NotFound


def test_options_when_no_cluster_is_meant_stay_as_they_are() -> None:
    where = ServerOptions()
    with reached(where) as there:
        assert there is where


@pytest.mark.parametrize("named", [{"server": "gpu1:8470"}, {"home": Path("/tmp/voda")}])
def test_context_when_a_server_is_named_too_is_refused(named: dict[str, object]) -> None:
    where = ServerOptions(context="prod", **named)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="leave out --server and --home"), reached(where):
        pass


@pytest.mark.parametrize("named", [{"server": "gpu1:8470"}, {"home": Path("/tmp/voda")}])
def test_plugin_when_a_server_is_named_asks_that(named: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubectl-voda", "queue"])
    where = ServerOptions(**named)  # type: ignore[arg-type]
    with reached(where) as there:
        assert there is where


def test_plugin_when_there_is_no_kubectl_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubectl-voda", "queue"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("VODA_SERVER", raising=False)
    with pytest.raises(NotFound, match="there is no kubectl on the PATH"), reached(ServerOptions()):
        pass
