"""Matching: which cells of a column a condition holds for, a whole column at a time.

As in SQL, an empty cell has no answer to any comparison, so no condition holds for it, not even `not`. A number and a
text are never equal, and neither is less than the other.
"""

from __future__ import annotations

from functools import reduce
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from excel.template.conditions import And, Compare, Condition, In, Like, Not, Operator, Or

_FUNCTIONS = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.equal,  # negated: what cannot be equal differs
    Operator.LESS: pc.less,
    Operator.LESS_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_EQUAL: pc.greater_equal,
}


def matches(condition: Condition, numbers: pa.Array, texts: pa.Array) -> pa.BooleanArray:
    """For each cell whether the condition holds.

    Args:
        condition: What to ask.
        numbers: The cells as float64, null where a cell is no number.
        texts: The cells as strings, null where a cell is no text. A cell that is null in both is empty; one that is
            in both answers as either.
    """
    filled = pc.or_(numbers.is_valid(), texts.is_valid())
    return pc.and_(filled, _holds(condition, numbers, texts))


def _holds(condition: Condition, numbers: pa.Array, texts: pa.Array) -> pa.BooleanArray:
    """The answer for each cell, whatever it is for the empty ones; never null."""
    match condition:
        case Compare(operator, value):
            cells = texts if isinstance(value, str) else numbers
            answers = _FUNCTIONS[operator](cells, value).fill_null(False)
            return pc.invert(answers) if operator is Operator.NOT_EQUAL else answers
        case In(values):
            written = [value for value in values if isinstance(value, str)]
            # The lookup tells 0 and -0 apart; a sum with 0 is never -0.
            counted = [value + 0.0 for value in values if not isinstance(value, str)]
            among = pc.is_in(pc.add(numbers, 0.0), value_set=pa.array(counted, pa.float64()))
            return pc.or_(among, pc.is_in(texts, value_set=pa.array(written, texts.type)))
        case Like(pattern):
            return pc.match_like(texts, pattern).fill_null(False)
        case Not(part):
            return pc.invert(_holds(part, numbers, texts))
        case And(parts):
            return reduce(pc.and_, (_holds(part, numbers, texts) for part in parts))
        case Or(parts):
            return reduce(pc.or_, (_holds(part, numbers, texts) for part in parts))
        case _:
            assert_never(condition)
