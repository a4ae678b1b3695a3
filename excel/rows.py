"""Rows: which row of data stands in which row of the sheet, where row heads say it."""

from __future__ import annotations

from collections.abc import Sequence

from excel.template.models import Template

_LISTED = 20
_LISTED_CHARACTERS = 60


class UncoveredRows(ValueError):
    """Rows of data have keys that no row head has.

    Attributes:
        names: These keys, each once, in the order of the data.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        listed = ", ".join(
            f"“{name[:_LISTED_CHARACTERS]}{'…' * (len(name) > _LISTED_CHARACTERS)}”" for name in names[:_LISTED]
        )
        more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
        super().__init__(f"No row head covers the rows of {listed}{more}.")


def arrange_by_leaf(template: Template, keys: Sequence[str]) -> list[list[int | None]]:
    """The rows of the body under each leaf of the row heads, from top to bottom.

    Each is the place of a row of data, or None where a head keeps a row that has no data.

    Args:
        template: One with row heads.
        keys: To which row head each row of data belongs.

    Raises:
        UncoveredRows: Some belong to none.
    """
    leaves = [leaf for row in template.rows for leaf in row.leaves]
    found: dict[str | None, list[int | None]] = {leaf.name: [] for leaf in leaves if leaf.name is not None}
    uncovered = dict.fromkeys(key for key in keys if key not in found)
    if uncovered:
        raise UncoveredRows(list(uncovered))
    for place, key in enumerate(keys):
        found[key].append(place)
    arranged = []
    for leaf in leaves:
        places = found.get(leaf.name, [])
        reserved: list[int | None] = [None] * (leaf.row_count - len(places))
        arranged.append(places + reserved)
    return arranged
