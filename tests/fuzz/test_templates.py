"""Templates, right and nearly right: refused in sentences, or drawn into a workbook that two readers accept."""

from __future__ import annotations

import io
import json
from typing import Any

import openpyxl
import pytest
import python_calamine
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from api.downloads import preview
from api.downloads.preview import PreviewRequest
from api.http import validation
from api.http.problems import RequestRejected
from domain.faults import SourceFault
from excel.limits import UncoveredRows

EXAMPLES = 150
TEXT_MAX = 20

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=TEXT_MAX)
keys = st.sampled_from(["a", "b", "c", "d"])
strange = texts | st.sampled_from(["_", "__row__", "_row_head_"])
keys |= st.integers(1, 30).flatmap(lambda draw: strange if draw == 30 else st.sampled_from(["e", "f"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
odd = scalars | st.lists(st.integers(), max_size=2) | st.dictionaries(keys, st.integers(), max_size=2)


def mostly(right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Wrong rarely enough that many a whole template is right."""
    return st.integers(1, 40).flatmap(lambda draw: odd if draw == 40 else right)


colors = mostly(st.sampled_from(["red", "FF8800", "#abc", True, "cyan"]))
conditions = mostly(
    st.sampled_from([">=0 or <=-10", "in ('x', 3)", "like '%a_'", "not (>1 and <5)", "!= ''", "= true", "> 2026-01-01"])
)
rules = st.fixed_dictionaries({}, optional={"condition": conditions, "color": colors, "bold": mostly(st.booleans())})
kinds = ["auto", "text", "number", "date", "datetime", "boolean", "rich", "link", "formula", "string"]
looks = {
    "title": mostly(texts),
    "type": mostly(st.sampled_from(kinds)),
    "format": mostly(st.sampled_from(["0.00", "#,##0", "yyyy-mm-dd", "@", "[Red]0;-0"])),
    "width": mostly(st.integers(1, 60) | st.just(-1)),
    "wrap": mostly(st.booleans()),
    "height": mostly(st.integers(5, 60)),
    "align": mostly(st.sampled_from(["left", "center", "right"])),
    "v-align": mostly(st.sampled_from(["top", "middle", "bottom"])),
    "color": colors,
    "bold": mostly(st.booleans()),
    "bg_color": colors,
    "condition_style": mostly(st.lists(rules, max_size=2)),
}


def nodes(optional: dict[str, st.SearchStrategy[Any]], more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Nodes of a tree, whose branches are drawn from the second strategy."""
    children = {"children": st.lists(more, min_size=1, max_size=3)}
    return mostly(st.fixed_dictionaries({"name": keys}, optional=optional | children))


leaves = mostly(st.fixed_dictionaries({"name": keys}, optional=looks))
columns = st.lists(st.recursive(leaves, lambda more: nodes(looks, more), max_leaves=6), min_size=1, max_size=4)
row_looks = {"title": mostly(texts), "bg_color": colors, "row_count": mostly(st.integers(1, 4))}
row_leaves = mostly(st.fixed_dictionaries({"name": keys}, optional=row_looks))
rows = st.lists(st.recursive(row_leaves, lambda more: nodes(row_looks, more), max_leaves=4), min_size=1, max_size=3)
charts = st.fixed_dictionaries(
    {"type": mostly(st.sampled_from(["line", "column", "bar", "pie"])), "values": mostly(st.lists(keys, max_size=2))},
    optional={"categories": mostly(keys), "title": mostly(texts)},
)
trees = st.fixed_dictionaries({"col": columns}, optional={"row": rows, "charts": st.lists(charts, max_size=2)})
templates = mostly(trees | columns | st.dictionaries(keys, mostly(texts), min_size=1, max_size=4) | st.none())
pairs = st.dictionaries(texts, mostly(scalars), max_size=5)
regions = st.none() | mostly(pairs | st.lists(pairs, max_size=3))
html = texts | st.sampled_from(["<b>a</b><br><font color='red'>b", "<script>x</script>", "<li>a<p>b", "&amp;&#x41;<"])
cells = odd | texts
cells |= st.sampled_from(["2026-01-31T08:00:00Z", "1899-01-01", "00123", "12345678901234567890", "<b>x</b>", "=1+1"])
records = st.lists(st.dictionaries(keys, cells, max_size=4), max_size=12)
data = st.none() | records | st.dictionaries(keys, records, max_size=3)
around = {"title": texts, "summary": html, "header": regions, "footer": regions | html}
requests = st.fixed_dictionaries(
    {"template": templates, "data": data}, optional={**around, "time_zone": st.just("Asia/Tokyo")}
)


# A number past the calendar stays that number, whatever format its column has; Excel shows it as a row of #.
@pytest.mark.filterwarnings("ignore:Cell .* is marked as a date but the serial value:UserWarning")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests)
def test_any_template_is_told_or_drawn(request: dict[str, JsonValue]) -> None:
    """Faults have a path and a sentence; a book that is drawn opens."""
    result = outcome(json.dumps(request))

    event(type(result).__name__)
    if isinstance(result, bytes):
        assert openpyxl.load_workbook(io.BytesIO(result)).worksheets
        python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(result)).get_sheet_by_index(0).to_python()
    else:
        assert result
        assert all(sentence.endswith((".", "?", "!", "”")) for sentence in result), result


def outcome(text: str) -> bytes | list[str]:
    """What a preview answers: the book, or all sentences."""
    try:
        body = PreviewRequest.model_validate_json(text, strict=True)
        drawing = preview.parse_drawing_within_preview_limits(body)
        sent = json.dumps(json.loads(text)["data"]).encode()
        page = preview.build_sample_page(drawing) if body.data is None else preview.build_first_rows_page(sent)
        return preview.draw_preview(drawing, page, body.time_zone)
    except ValidationError as error:
        return [problem.message for problem in validation.describe_errors(error, PreviewRequest)]
    except RequestRejected as refusal:
        return [problem.message for problem in refusal.errors]
    except (SourceFault, UncoveredRows) as fault:
        return [str(fault)]
