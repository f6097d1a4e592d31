"""The worked example in CONTRIBUTING.md, taken at its word."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

from voda import policies as package
from voda.policies import POLICIES

_CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Lay the example's policy beside the others and return the source of its test."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", _CONTRIBUTING.read_text(encoding="utf-8"), re.DOTALL)
    (policy_path, policy_source), (_, test_source) = blocks
    (tmp_path / Path(policy_path).name).write_text(policy_source, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    POLICIES.search_again()
    yield test_source
    sys.modules.pop("voda.policies.elastic_las", None)
    POLICIES.search_again()


def test_example_when_its_file_is_added_is_a_policy_and_passes_its_test(example: str) -> None:
    assert len(POLICIES["elastic-las"].title) <= 60
    scope: dict[str, object] = {}
    exec(compile(example, "CONTRIBUTING.md", "exec"), scope)
    tests = [found for name, found in scope.items() if name.startswith("test_")]
    assert len(tests) == 1
    assert isinstance(tests[0], FunctionType)
    tests[0]()
