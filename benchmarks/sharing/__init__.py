"""Raters that others published, to compare with: what they decide is theirs, the cluster and the search are voda's."""
