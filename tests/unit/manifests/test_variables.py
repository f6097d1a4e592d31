"""Kubernetes' rules for `$(VAR)`."""

import pytest

from voda.manifests.programs import Program, expand_program
from voda.manifests.variables import expand_text


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("train --epochs $(EPOCHS)", "train --epochs 7"),
        ("$(EPOCHS)$(EPOCHS)", "77"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(EPOCHS)", "$(EPOCHS)"),
        ("$$$(EPOCHS)", "$7"),
        ("$$$$(EPOCHS)", "$$(EPOCHS)"),
        ("$EPOCHS ${EPOCHS}", "$EPOCHS ${EPOCHS}"),
        ("$(EPOCHS", "$(EPOCHS"),
        ("$(EPOCHS $(EPOCHS)", "$(EPOCHS $(EPOCHS)"),
        ("$() $", "$() $"),
        ("$(REFERS)", "$(EPOCHS)"),
    ],
)
def test_text_when_it_has_references_follows_kubernetes(text: str, becomes: str) -> None:
    assert expand_text(text, {"EPOCHS": "7", "REFERS": "$(EPOCHS)"}) == becomes


def test_env_when_a_value_refers_to_another_sees_only_what_came_before() -> None:
    env = (("A", "1"), ("B", "$(A)$(C)"), ("C", "3"), ("D", "$(C)-$(GIVEN)"))
    _, found = expand_program(Program(role="launcher", argv=(), env=env), {"GIVEN": "x"})
    assert {name: found[name] for name in "ABCD"} == {"A": "1", "B": "1$(C)", "C": "3", "D": "3-x"}


def test_env_when_a_name_comes_twice_takes_the_later_value() -> None:
    argv, env = expand_program(Program(role="worker", argv=("$(A)",), env=(("A", "1"), ("A", "$(A)2"))), {"A": "0"})
    assert (argv, env["A"]) == (("12",), "12")


def test_pod_name_when_the_cluster_gives_none_is_made_of_job_and_role() -> None:
    program = Program(role="launcher", argv=("$(ME)",), env=(("ME", "$(VODA_POD_NAME)"),))
    assert expand_program(program, {"VODA_JOB_NAME": "digits"})[0] == ("digits-launcher",)
    assert expand_program(program, {"VODA_POD_NAME": "digits-launcher-x7"})[0] == ("digits-launcher-x7",)
