"""Claims about the texts: no link leads nowhere, no setting is left out, no test is named that is not there."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import FieldInfo

from voda.app.kubernetes.options import POOL_FIELDS, KubernetesOptions

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("examples/**/*.md")]
)
LINK = re.compile(r"\]\(([^)\s#]+)(?:#([^)\s]+))?\)|\]\(#([^)\s]+)\)")


def anchors(text: Path) -> set[str]:
    """Return the names that a text's headings can be linked by, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", text.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_link_within_the_repository_leads_somewhere(text: Path) -> None:
    for path, heading, own in LINK.findall(text.read_text("utf-8")):
        if "://" in path or path.startswith("mailto:"):
            continue
        target = text.parent / path if path else text
        assert target.exists(), f"{text.name} links to {path}, which is not there"
        if name := heading or own:
            assert name in anchors(target), f"{text.name} links to {path}#{name}, which is no heading there"


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_file_of_the_sources_that_a_text_names_is_there(text: Path) -> None:
    named = re.findall(r"`((?:voda|tests|tools|benchmarks)/[a-z0-9_/]+\.py|toolkit/\w+\.py)`", text.read_text("utf-8"))
    named = [name for name in named if Path(name).name != "jaxjob.py"]  # the kind that a reader is shown how to add
    paths = [ROOT / ("voda/policies" if name.startswith("toolkit/") else "") / name for name in named]
    assert [str(path.relative_to(ROOT)) for path in paths if not path.exists()] == []


def test_number_of_a_decision_is_given_once() -> None:
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "adr").glob("*.md"))]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]


def fields_of(record: type[Struct], before: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every field of the settings file by its path."""
    for field in msgspec.structs.fields(record):
        path = f"{before}{field.encode_name}"
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            yield from fields_of(field.type, f"{path}.")
        else:
            yield path, field


def test_settings_are_all_told_with_their_defaults() -> None:
    text = (ROOT / "docs" / "settings.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \| .+ \|$", text, re.MULTILINE))
    of_pools = {path: told.pop(path) for path in [*told] if path.startswith("pools.NAME.")}
    assert of_pools == {f"pools.NAME.{name}": "as the log has it" for name in POOL_FIELDS}
    assert told.keys() == dict(fields_of(KubernetesOptions)).keys()
    for path, field in fields_of(KubernetesOptions):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        unset = "as suits the election" if path.startswith("leader.") else "as the log has it"
        shown = unset if default is None else f"`{msgspec.json.encode(default).decode()}`"
        assert told[path].replace(", ", ",") == shown, path


def test_settings_that_the_chart_has_under_another_name_are_told_with_it() -> None:
    text = (ROOT / "docs" / "settings.md").read_text("utf-8")
    template = (ROOT / "deploy" / "helm" / "voda" / "templates" / "settings.yaml").read_text("utf-8")
    keys = dict(re.findall(r"^\| `(sharing\.\w+)` .* with the chart `([\w.]+)`\. \|$", text, re.MULTILINE))
    assert keys == {
        "sharing.enabled": "extender.enabled",
        "sharing.rater": "extender.rater",
        "sharing.claims": "sharedClaims.enabled",
    }
    assert [key for key in keys.values() if f".Values.{key}" not in template] == []
    shared = (ROOT / "docs" / "shared-gpus.md").read_text("utf-8")
    assert "`sharing.rater` (with the chart `extender.rater`)" in shared


def test_tests_that_are_named_are_there() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 20
    assert named <= there, named - there


def test_every_line_on_what_disagrees_names_a_test() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    _, _, table = text.partition("## When log and cluster disagree")
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert lines
    assert [line for line in lines if "`test_" not in line] == []
