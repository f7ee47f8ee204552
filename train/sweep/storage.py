"""Where the study of a sweep is kept: a file in its folder, a database, or what Optuna's proxy stands in front of."""

import fcntl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Any

from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.storages import BaseStorage, GrpcStorageProxy, RDBStorage
from sqlalchemy import URL, NullPool, make_url
from sqlalchemy.exc import SQLAlchemyError

from vaswani.errors import UserError
from vaswani.files import in_bucket

try:
    from grpc import RpcError  # type: ignore[import-untyped]
except ImportError:  # only a storage of grpc:// needs it

    class RpcError(Exception):  # type: ignore[no-redef]
        """Stands in for the error of a package that is not installed."""


STORAGE_ERRORS = (OptunaError, SQLAlchemyError, RpcError)
_PORT = 13000  # Optuna's, of a proxy
_PATIENCE = 10.0  # seconds until one answers
warnings.filterwarnings("ignore", category=ExperimentalWarning)  # heartbeats, the retry callback, the proxy


def connect(url: str | None, workdir: Path, silence: int) -> BaseStorage:
    """Returns the storage at a URL; without one, of the sweep's own file.

    A worker without a heartbeat for `silence` seconds counts as dead. Optuna's proxy (grpc://HOST:PORT) carries no
    heartbeats.

    Raises:
      UserError: the storage cannot be used.
    """
    own = workdir / "sweep" / "study.db"
    if url is None and (own.is_symlink() or own.parent.is_symlink()):
        raise UserError(f"{own}: a link to elsewhere; give the database that you mean as --storage=URL")
    place = URL.create("sqlite", database=str(own)) if url is None else make_url(url)
    kind = place.get_backend_name()

    # A proxy stands in front of a database that another machine has.
    if kind == "grpc":
        proxy = GrpcStorageProxy(host=place.host or "localhost", port=place.port or _PORT)
        try:
            proxy.wait_server_ready(timeout=_PATIENCE)
        except ConnectionError as error:
            raise UserError(f"--storage={url}: no Optuna proxy answers there") from error
        return proxy

    # A database, or a file of SQLite. A connection that its server has closed meanwhile is made again.
    engine: dict[str, Any] = {"pool_pre_ping": True}
    if kind == "sqlite":
        # Each connection is closed after its use: one that a pool kept would never be.
        engine = {"poolclass": NullPool, "connect_args": {"timeout": 60}}
    address = place.render_as_string(hide_password=False)

    def open_database() -> RDBStorage:
        # Six heartbeats may be lost before a worker counts as dead.
        return RDBStorage(address, engine, heartbeat_interval=max(1, silence // 6), grace_period=silence)

    # Workers that start together create the tables together: one of them succeeds, and the others try again.
    for _ in range(4):
        with suppress(SQLAlchemyError):
            return open_database()
        sleep(1)
    return open_database()


@contextmanager
def reachable() -> Iterator[None]:
    """Turns what a storage raises when it cannot be used, or its study is damaged, into a `UserError`."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, OverflowError) as error:  # of attributes that no worker has written
        raise UserError(f"--storage: the study is damaged ({error})") from error
    except (*STORAGE_ERRORS, ImportError, RuntimeError, ValueError) as error:
        raise unreachable(error) from error


def unreachable(error: Exception) -> UserError:
    """Returns a storage's error as one line."""
    # Optuna wraps SQLAlchemy's error, which wraps the database's: its first line says most.
    innermost = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
    if isinstance(error, RpcError) and hasattr(error, "details"):
        innermost = error.details()
    lines = str(innermost).strip().splitlines()
    return UserError(f"--storage: {lines[0] if lines else type(error).__name__}")


@contextmanager
def exclusive(workdir: Path) -> Iterator[None]:
    """Keeps the other workers of this folder out, where its file system has locks; a bucket has none."""
    if in_bucket(workdir):
        yield
        return
    with (workdir / "sweep" / "lock").open("a") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def without_password(url: str | None) -> str | None:
    """Returns the URL with its password masked; raises `UserError` where it is none."""
    with reachable():
        if not url:
            return url
        return make_url(url).render_as_string(hide_password=True)
