"""A setting of a pool is spelled once, in its record: the command line, the API and the settings file follow."""

import msgspec
import pytest
from click import Context, Group
from click.testing import CliRunner

from voda.app.kubernetes.options import POOL_FIELDS
from voda.application.change_settings import SettingsChange, check_settings, given_settings, new_settings
from voda.cli import build_app
from voda.domain.errors import InvalidField
from voda.domain.settings import OF_ONE_MACHINE, Settings, flat, patched

NAMES = set(Settings.__struct_fields__)


def test_setting_is_an_option_a_field_of_the_api_and_one_of_the_settings_file() -> None:
    app = build_app()
    assert isinstance(app, Group)
    command = app.get_command(Context(app), "settings")
    assert command is not None
    assert NAMES - {"parameters"} <= {one.name for one in command.params}
    assert set(SettingsChange.__struct_fields__) == NAMES
    assert set(POOL_FIELDS.values()) == NAMES - OF_ONE_MACHINE
    assert POOL_FIELDS["nodeGraceSeconds"] == "node_grace_s"
    schema = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    assert [name for name, one in schema.items() if not one.get("description")] == []


def test_help_of_settings_tells_text_and_default_of_the_record() -> None:
    shown = CliRunner().invoke(build_app(), ["settings", "--help"], env={"COLUMNS": "240"}).stdout
    line = next(line for line in shown.splitlines() if "│ --ratelimit " in line)
    assert "Least time from a plan that interrupts jobs to the next one; 0 = none." in line
    assert "[default: (in a new pool 5s under voda up, 30s on Kubernetes)]" in line
    assert "(20 GB in a new pool)" in next(line for line in shown.splitlines() if "│ --retention-size " in line)
    assert "--heed-resize-cost/--ignore-resize-cost" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ratelimit", "2d"], "expected 1d or less, got '2d'"),
        (["--span-penalty", "2"], "expected 1 or less"),
        (["--retention", "30"], "unit"),
        (["--output-size", "1kB"], "expected 1.0 MB or more, got '1kB'"),
        (["--output-size", "much"], "expected a size such as 500MB, 5GB or 4GiB, got 'much'"),
    ],
)
def test_option_of_a_setting_when_out_of_bounds_is_refused_before_anybody_is_asked(
    arguments: list[str], told: str
) -> None:
    done = CliRunner().invoke(build_app(), ["settings", *arguments], env={"COLUMNS": "200"})
    assert (done.exit_code, told in done.output) == (2, True), done.output


def test_change_is_what_was_given_within_bounds_and_not_yet_in_force() -> None:
    change = msgspec.json.decode(b'{"ratelimit_s": 5, "policy": "elastic-fifo"}', type=SettingsChange)
    patch = check_settings(given_settings(change))
    assert patch == {"ratelimit_s": 5.0, "policy": "elastic-fifo"}
    assert new_settings(patch, Settings()) == {"ratelimit_s": 5.0}
    with pytest.raises(InvalidField, match=r"ratelimit_s: expected a number <= 86400\.0, got 86401"):
        check_settings({"ratelimit_s": 86_401})


def test_settings_when_patched_keep_the_rest_and_leave_out_what_went() -> None:
    first = patched(Settings(), {"policy": "tiresias", "parameters": {"tiresias": {"promote_knob": 2.0}}})
    last = patched(first, {"parameters": {"tiresias": {"demote_gpu_s": 9.0}}, "went": 1})
    assert last.parameters == {"tiresias": {"promote_knob": 2.0, "demote_gpu_s": 9.0}}
    assert (last.policy, flat({"parameters": last.parameters})["tiresias.demote_gpu_s"]) == ("tiresias", 9.0)
