"""A policy with a parameter is one file: API, command line and log take the parameter from its Struct."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.builders import a_job, a_node, a_state
from tests.service import a_service
from voda import policies as package
from voda.cli import build_app
from voda.domain.errors import InvalidField, InvalidInput
from voda.domain.settings import Settings
from voda.policies import POLICIES
from voda.policies.toolkit.parameters import (
    changed_parameters,
    check_parameters,
    parameters_in_force,
    parse_assignments,
)
from voda.simulator.compare import contestants

_POLICY = '''
"""Patience: as FIFO, on no more than a share of the GPUs."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from voda.domain.plan import Allocation
from voda.domain.state import ClusterState
from voda.policies.toolkit.allocation import give_first, requested
from voda.policies.toolkit.order import by_submission
from voda.policies.toolkit.parameters import changed_parameters, parameters
from voda.policies.toolkit.allocation import as_requested, explained


class ThriftyParameters(Struct, frozen=True, kw_only=True):
    spared: Annotated[int, Meta(ge=0, le=64, description="GPUs that stay free.")] = 1


class Thrifty:
    name: ClassVar[str] = "thrifty"
    title: ClassVar[str] = "As FIFO, some GPUs stay free"
    paper: ClassVar[str] = "Nobody, 2026"
    parameters: ClassVar[type[ThriftyParameters]] = ThriftyParameters

    def allocate(self, view: ClusterState, now: float) -> Allocation:
        jobs = by_submission(view)
        spared = parameters(view, self.name, ThriftyParameters).spared
        shares = give_first(jobs, view.capacity_gpus - spared, requested)
        return explained(view, shares, why=as_requested, size=requested)
'''


@pytest.fixture
def thrifty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lay one file with a policy beside the others."""
    (tmp_path / "thrifty.py").write_text(_POLICY, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    POLICIES.search_again()
    yield
    sys.modules.pop("voda.policies.thrifty", None)
    POLICIES.search_again()


@pytest.mark.usefixtures("thrifty")
async def test_policy_when_one_file_is_added_then_the_api_documents_takes_and_shows_its_parameter() -> None:
    async with a_service() as service:
        document = (await service.ask("GET", "/openapi.json")).json()
        field = document["components"]["schemas"]["SettingsChange"]["properties"]["parameters"]
        assert field["properties"]["thrifty"]["properties"] == {
            "spared": {
                "type": "integer",
                "minimum": 0,
                "maximum": 64,
                "default": 1,
                "description": "GPUs that stay free.",
            }
        }
        change = {"policy": "thrifty", "parameters": {"thrifty": {"spared": 3}}}
        answer = await service.ask("PATCH", "/api/v1/pools/default/settings", body=change)
        assert answer.as_a(Settings).parameters["thrifty"] == {"spared": 3}
        assert service.backend.journal.view.cluster.settings("default").parameters == {"thrifty": {"spared": 3}}


@pytest.mark.usefixtures("thrifty")
def test_policy_when_one_file_is_added_then_the_command_line_shows_its_parameter() -> None:
    assert "spared = 1, 0 to 64: GPUs that stay free." in CliRunner().invoke(build_app(), ["policies"]).stdout
    (contestant,) = contestants(policies=["thrifty:spared=2"], placers=["steady"])
    assert (contestant.title, contestant.parameters) == ("thrifty,spared=2", {"spared": 2})


@pytest.mark.usefixtures("thrifty")
def test_policy_when_its_parameter_is_set_decides_by_it() -> None:
    view = a_state(jobs=[a_job("a"), a_job("b")], nodes=[a_node(gpus=2)])
    assert dict(POLICIES["thrifty"].allocate(view, 0.0).replicas) == {"a": 1, "b": 0}
    view = a_state(
        jobs=view.jobs.values(), nodes=[a_node(gpus=2)], settings=Settings(parameters={"thrifty": {"spared": 0}})
    )
    assert dict(POLICIES["thrifty"].allocate(view, 0.0).replicas) == {"a": 1, "b": 1}


def test_parameters_when_nobody_set_them_are_their_defaults() -> None:
    settings = Settings(parameters={"tiresias": {"demote_gpu_s": 1.0}})
    assert parameters_in_force(settings) == {
        "elastic-tiresias": {"demote_gpu_s": 3600.0, "promote_knob": 8.0, "compact_pending": 10},
        "elastic-value": {"fairness": 1.0},
        "tiresias": {"demote_gpu_s": 1.0, "promote_knob": 8.0},
    }


def test_parameters_when_changed_are_those_that_differ_from_what_is_in_force() -> None:
    settings = Settings(parameters={"tiresias": {"demote_gpu_s": 10.0}})
    wanted = {"tiresias": {"demote_gpu_s": 1.0, "promote_knob": 8.0}, "elastic-tiresias": {"promote_knob": 8.0}}
    assert changed_parameters(wanted, settings) == {"tiresias": {"demote_gpu_s": 1.0}}
    assert changed_parameters({"tiresias": {"demote_gpu_s": 10.0}}, settings) == {}


@pytest.mark.parametrize(
    ("policy", "assignment", "sentence"),
    [
        ("tiresias", "demote_gpu_s=-1", "parameters.tiresias.demote_gpu_s: expected a number >= 0.0, got -1"),
        ("tiresias", "demote_gpu_s=much", "parameters.tiresias.demote_gpu_s: expected a number, got 'much'"),
        ("tiresias", "knob=1", "tiresias has no parameter 'knob': it has demote_gpu_s, promote_knob"),
        ("fifo", "knob=1", "fifo has no parameter 'knob': it has none"),
        ("tiresas", "knob=1", "Did you mean 'tiresias'"),
    ],
)
def test_parameter_when_wrong_is_refused_with_its_path(policy: str, assignment: str, sentence: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_parameters({policy: parse_assignments(policy, [assignment])})
    assert sentence in str(refused.value)
    assert refused.value.field.startswith(f"parameters.{policy}")


def test_assignment_when_it_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"parameter 'knob' of tiresias: expected NAME=VALUE"):
        parse_assignments("tiresias", ["knob"])
    assert parse_assignments("p", ["a=1", "b=true", "c=x", "d=1.5"]) == {"a": 1, "b": True, "c": "x", "d": 1.5}


def test_parameters_of_an_unknown_policy_are_refused_even_when_there_are_none() -> None:
    with pytest.raises(InvalidField, match="policy 'nope' is not known") as refused:
        check_parameters({"nope": {}})
    assert refused.value.field == "parameters.nope"


def test_parameter_when_it_is_minus_zero_is_zero() -> None:
    assert str(check_parameters({"tiresias": {"demote_gpu_s": -0.0}})) == "{'tiresias': {'demote_gpu_s': 0.0}}"
