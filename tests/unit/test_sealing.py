"""Sealing with several keys: what an old one made is sealed anew under the first, and nothing else is touched."""

from __future__ import annotations

import base64
import importlib
import json
import os
import pkgutil

import pytest
from pydantic import SecretStr
from sqlalchemy import Column, MetaData, Table, Text

from domain.downloads.models import DownloadSpec, TableSource
from domain.secrets import SealedText
from infra.database import TableRow
from infra.secrets import SealUnreadableError, SecretSealer
from infra.settings import SecretSettings
from stores import sealed, tables
from stores.tables import SEALED

OLD, NEW, OTHER = (base64.urlsafe_b64encode(os.urandom(32)).decode() for _ in range(3))


def make_sealer(*keys: str) -> SecretSealer:
    """A sealer with these keys."""
    return SecretSealer(SecretSettings(seal=[SecretStr(key) for key in keys]))


def test_only_what_an_old_key_made_is_sealed_anew() -> None:
    """Then the first key alone opens it."""
    both = make_sealer(NEW, OLD)
    resealed = both.reseal(make_sealer(OLD).seal("a secret"))

    assert resealed
    assert make_sealer(NEW).open(resealed) == "a secret"
    assert both.reseal(resealed) is None
    with pytest.raises(SealUnreadableError):
        both.reseal(make_sealer(OTHER).seal("a secret"))


def test_every_sealed_value_of_a_request_is_sealed_anew() -> None:
    """Those of its tables, too; a field that only looks like a sealed value is the caller's, and stays."""
    old, both = make_sealer(OLD), make_sealer(NEW, OLD)
    source = TableSource(source_url=old.seal("url"), source_headers=old.seal("headers"))
    spec = DownloadSpec(
        task_id="dl", project_id="prj", file_name=old.seal("x").token, callback=old.seal("callback"), tables=[source]
    )
    text = sealed.reseal_values_in_download_request(both, json.dumps(spec.model_dump(mode="json")))

    assert text
    assert sealed.reseal_values_in_download_request(both, text) is None
    after = DownloadSpec.model_validate_json(text)
    values = (after.callback, after.tables[0].source_url, after.tables[0].source_headers)
    assert [make_sealer(NEW).open(value) for value in values if value] == ["callback", "url", "headers"]
    changed = {"callback": spec.callback, "tables": spec.tables}
    assert after.model_copy(update=changed) == spec


def list_marked_columns(metadata: MetaData) -> set[tuple[str, str]]:
    """The columns whose tables say that they are sealed."""
    return {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        if column.info == SEALED
    }


def test_every_sealed_column_is_listed() -> None:
    """What rotation passes over is lost with the old key; `find_sealed_columns` of a deployment sees unmarked ones."""
    for module in pkgutil.iter_modules(tables.__path__, f"{tables.__name__}."):
        importlib.import_module(module.name)
    assert list_marked_columns(TableRow.metadata) == {(each.table, each.column) for each in sealed.COLUMNS}


def test_a_sealed_column_of_a_new_table_is_seen() -> None:
    """The look at the tables sees what it looks for."""
    metadata = MetaData()
    Table("checks", metadata, Column("check_id", Text), Column("token", Text, info=SEALED))
    assert list_marked_columns(metadata) == {("checks", "token")}


@pytest.mark.parametrize("model", [DownloadSpec, TableSource])
def test_every_sealed_field_of_a_request_is_listed(model: type[DownloadSpec | TableSource]) -> None:
    """By its type."""
    fields = {name for name, field in model.model_fields.items() if field.annotation == SealedText | None}
    assert fields <= set(sealed.REQUEST_FIELDS)
    assert fields
