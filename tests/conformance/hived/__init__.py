"""HiveD's behaviour as recorded vectors, against voda.cells: `python -m tests.conformance.hived FILE...`.

In reading order: `vectors` (the files), `driver` (one group's operations on a book of cells), `wording` (HiveD's words
for what voda says), `comparison`, `report`.
"""
