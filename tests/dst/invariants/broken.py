"""A broken rule, as the checker tells it.

Rule: a sentence that names what, which, expected and got, so that the story of a seed can end with it.
"""


class Broken(AssertionError):
    """An invariant does not hold.

    Args:
        rule: short name of the invariant; a story is the shortest one that breaks the same rule.
        what: one sentence.
    """

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.what = what
