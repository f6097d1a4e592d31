"""Claims about the texts: no link leads nowhere."""

import re
from pathlib import Path

import pytest

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
