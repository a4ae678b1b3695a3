"""The SQL that creates the tables of a module, for each database that the handler supports."""

from __future__ import annotations

from typing import Final

from haulage.address_module.database import MYSQL, POSTGRESQL, SQLITE, Dialect


def build_create_table_statements(dialect: Dialect) -> list[str]:
    """Return the statements that create the missing tables of the handler; running them again changes nothing.

    Args:
        dialect: SQLITE, POSTGRESQL or MYSQL.
    """
    return [each.strip() for each in _TABLES[dialect].split(";") if each.strip()]


_POSTGRESQL: Final = """
CREATE TABLE IF NOT EXISTS haulage_addresses (
    uprn       bigint PRIMARY KEY,
    address_id bigint NOT NULL,             -- not unique, see the contract
    record     json   NOT NULL
);
CREATE INDEX IF NOT EXISTS haulage_addresses_by_id ON haulage_addresses (address_id);
CREATE TABLE IF NOT EXISTS haulage_deleted (              -- logically
    address_id  bigint PRIMARY KEY,
    uprn        bigint NOT NULL,            -- its last
    record      json   NOT NULL,
    deleted_seq bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS haulage_operations (
    op_id      varchar(64) PRIMARY KEY,
    result     text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS haulage_marks (
    uprn       bigint PRIMARY KEY,
    record_seq bigint NOT NULL,
    swap_seq   bigint NOT NULL
);
"""
_MYSQL: Final = """
CREATE TABLE IF NOT EXISTS haulage_addresses (
    uprn       BIGINT PRIMARY KEY,
    address_id BIGINT NOT NULL,             -- not unique, see the contract
    record     LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
    INDEX haulage_addresses_by_id (address_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS haulage_deleted (              -- logically
    address_id  BIGINT PRIMARY KEY,
    uprn        BIGINT NOT NULL,            -- its last
    record      LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
    deleted_seq BIGINT NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS haulage_operations (
    op_id      VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    result     TEXT        NOT NULL,
    applied_at TIMESTAMP   NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS haulage_marks (
    uprn       BIGINT PRIMARY KEY,
    record_seq BIGINT NOT NULL,
    swap_seq   BIGINT NOT NULL
) ENGINE = InnoDB;
"""
# Integers of SQLite have 64 bits; the names of other databases' types would do the same there.
_SQLITE: Final = """
CREATE TABLE IF NOT EXISTS haulage_addresses (
    uprn       INTEGER PRIMARY KEY,
    address_id INTEGER NOT NULL,            -- not unique, see the contract
    record     TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS haulage_addresses_by_id ON haulage_addresses (address_id);
CREATE TABLE IF NOT EXISTS haulage_deleted (              -- logically
    address_id  INTEGER PRIMARY KEY,
    uprn        INTEGER NOT NULL,           -- its last
    record      TEXT    NOT NULL,
    deleted_seq INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS haulage_operations (
    op_id      TEXT PRIMARY KEY,
    result     TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE IF NOT EXISTS haulage_marks (
    uprn       INTEGER PRIMARY KEY,
    record_seq INTEGER NOT NULL,
    swap_seq   INTEGER NOT NULL
);
"""
_TABLES: Final = {POSTGRESQL: _POSTGRESQL, MYSQL: _MYSQL, SQLITE: _SQLITE}
