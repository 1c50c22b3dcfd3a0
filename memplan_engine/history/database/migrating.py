"""The version of a store's tables: found, held against what is known here, and brought up to date."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from memplan_engine.errors import InputError
from memplan_engine.history.database.connecting import APPLICATION, MAKES, for_writing, is_sqlite
from memplan_engine.history.database.failures import explained
from memplan_engine.history.database.history_tables import PREFIX, VERSION_TABLE, Base

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x6D706C68
"""What writers that migrate a store in PostgreSQL take turns by."""


@cache
def _scripts(folders: tuple[Path, ...]) -> tuple[Config, ScriptDirectory]:
    config = Config()
    config.set_main_option("script_location", str(folders[0]).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(str(each).replace("%", "%%") for each in folders))
    return config, ScriptDirectory.from_config(config)


def latest_version(folders: tuple[Path, ...] = (MIGRATIONS,)) -> str:
    """The version that the migrations in `folders` lead to."""
    _, scripts = _scripts(folders)
    return str(scripts.get_current_head())


def version_of(connection: Connection, name: str) -> str:
    """The version of the tables in the database `name`, "" for none yet.

    Raises
    ------
    InputError: a database of something else.
    """
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        versions = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
        if len(versions) == 1:
            return str(versions[0])
    elif is_sqlite(connection):
        if not tables:
            return ""
    elif not any(table.startswith(PREFIX) for table in tables):
        return ""
    some = ", ".join(sorted(tables)[:3])
    raise InputError(name, "", f"a database of something else (tables {some})", "a store of history, or none")


def migrate(engine: Engine, name: str, folders: tuple[Path, ...] = (MIGRATIONS,), make: bool = True) -> str:
    """Bring the tables of the store `name` to the latest version, and give that. All of it is one
    transaction: whoever is killed on the way leaves the store as it was. Without `make` it has some.

    Raises
    ------
    InputError: a database of something else, an empty one that is not to be made a store, one of a newer
    version, or one that cannot be written to.
    """
    latest = latest_version(folders)
    with explained(name):
        with engine.begin() as connection:
            found = version_of(connection, name)
        if found == latest:
            return latest
        if not (found or make):
            raise _empty(name)
        with for_writing(engine).begin() as connection:
            if not is_sqlite(connection):
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            # Somebody else may have done it while we waited.
            if (found := version_of(connection, name)) != latest:
                _check_known(found, name, folders)
                _upgrade(connection, folders)
    return latest


def check_version(engine: Engine, name: str) -> None:
    """Raise InputError where the store `name`, which is only read, has not the version that is known here."""
    with explained(name), engine.begin() as connection:
        found = version_of(connection, name)
    if found != latest_version():
        if not found:
            raise _empty(name)
        _check_known(found, name, (MIGRATIONS,))
        expected = f"version {latest_version()}: whoever may write to it opens it once, which brings it there"
        raise InputError(name, "", f"tables of version {found}", expected)


def _empty(name: str) -> InputError:
    return InputError(name, "", "an empty database", f"a store of history: {MAKES}")


def _check_known(found: str, name: str, folders: tuple[Path, ...]) -> None:
    _, scripts = _scripts(folders)
    known = {script.revision for script in scripts.walk_revisions()}
    if found and found not in known:
        latest = latest_version(folders)
        newer = found.isdigit() and int(found) > int(latest)
        told = f"tables of the {'newer ' if newer else ''}version {found!r}"
        raise InputError(
            name, "", told, f"at most {latest}: install the memplan that made it, or a newer one"
        )


def _upgrade(connection: Connection, folders: tuple[Path, ...]) -> None:
    config, scripts = _scripts(folders)

    def steps(found: Any, _: object) -> Any:
        return scripts._upgrade_revs("head", found)

    with EnvironmentContext(config, scripts, fn=steps) as environment:
        environment.configure(
            connection=connection, target_metadata=Base.metadata, version_table=VERSION_TABLE
        )
        environment.run_migrations()
    if is_sqlite(connection):
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")
