"""Files as data: written whole, read against a schema, one writer at a time.

Every JSON file that the library reads comes through here. A schema is a type: a
TypedDict, a list, a number, `Annotated` with a rule where the type says too little.
What does not fit, is too large, too deep or not finite is a `UserError`. What is
written carries its own checksum as its last entry, `"crc32"`, which covers all before
it: it finds damage, not forgery. Imports neither JAX nor NumPy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import math
import os
import re
import socket
import stat
import time
import types
import typing
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ecop.errors import DiskError, UserError, described, fits

JSON_BYTES = 2**26  # of one JSON file
LINES_BYTES = 2**31  # of one file of JSON lines
DEPTH = 20  # of nested lists and objects where a schema leaves them open
LARGEST = 2**53  # whole numbers beyond it are not whole everywhere
FRESH = ".tmp-"  # begins the name of a file that is not whole yet
SEAL = re.compile(rb',\s*"crc32": "([0-9a-f]{8})"\s*\}')
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

# Rules of schemas


@dataclass(frozen=True)
class Within:
    """A number from low to high."""

    low: float
    high: float

    def __call__(self, value: Any, name: str) -> None:
        """Refuse what is outside."""
        if value is not None and not self.low <= value <= self.high:
            raise UserError(f"{name} must lie in [{self.low:g}, {self.high:g}]")


def one_line(value: str, name: str) -> None:
    """Refuse text that is long, has several lines, or cannot be printed."""
    if len(value) > 1000 or not value.isprintable():
        raise UserError(f"{name} must be one printable line, not {value!r:.40}")


Count = Annotated[int, Within(0, LARGEST)]
Name = Annotated[str, one_line]


def conform(value: Any, kind: Any, name: str = "it") -> None:
    """Refuse data that is not of a type; `name` is what the message calls it."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        _shallow(value, name)
    elif origin is Annotated:
        conform(value, parts[0], name)
        for rule in parts[1:]:
            rule(value, name)
    elif typing.is_typeddict(kind):
        conform(value, dict[str, Any], name)
        missing = kind.__required_keys__ - set(value)
        if missing:
            raise UserError(f"{name} lacks {', '.join(sorted(missing))}")
        for key, hint in _hints(kind).items():
            if key in value:
                conform(value[key], hint, key if name == "it" else f"{name}.{key}")
    elif origin in (list, dict):
        if not isinstance(value, origin):
            raise UserError(f"{name} must be {_words(kind)}, not {value!r:.40}")
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            conform(entry, parts[-1], f"{name}.{key}")
    elif origin in (typing.Union, types.UnionType):
        for part in parts[:-1]:
            with contextlib.suppress(UserError):
                return conform(value, part, name)
        conform(value, parts[-1], name)
    elif not fits(value, kind):
        raise UserError(f"{name} must be {_words(kind)}, not {value!r:.40}")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _words(kind: Any) -> str:
    known = {list: "a list", dict: "an object", str: "text"}
    return known.get(typing.get_origin(kind) or kind) or described(kind)


def _shallow(value: Any, name: str, depth: int = 0) -> None:
    if depth > DEPTH:
        raise UserError(f"{name} is nested too deeply")
    if isinstance(value, list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            _shallow(entry, name, depth + 1)


# Reading


def read_bytes(file: Path, most: int, start: int = 0) -> bytes:
    """The bytes, from `start` on, of a regular file that is not too large."""
    try:
        # Not blocking: a pipe in the place of a file must not make us wait.
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"'{file}' cannot be read: {error.strerror}.") from None
    with open(handle, "rb") as stream:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"'{file}' is not a plain file.")
        if found.st_size > most:
            raise UserError(f"'{file}' is too large: {found.st_size:,} bytes.")
        try:
            stream.seek(start)
            return stream.read(most)
        except OSError as error:
            raise UserError(f"'{file}' cannot be read: {error.strerror}.") from None


def parse(data: bytes | str) -> Any:
    """JSON without NaN, infinity, numbers out of range, and names given twice."""
    try:
        return json.loads(
            data if isinstance(data, str) else data.decode(),
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_once,
        )
    except RecursionError:
        raise UserError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise UserError("it is not text") from None
    except json.JSONDecodeError as error:
        raise UserError(str(error)) from None


def _refuse(word: str) -> Any:
    raise UserError(f"it holds {word}")


def _finite(word: str) -> float:
    value = float(word)
    return value if math.isfinite(value) else _refuse(word[:40])


def _whole(word: str) -> int:
    value = int(word) if len(word) < 20 else LARGEST + 1
    return value if abs(value) <= LARGEST else _refuse(word[:40])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UserError("it gives a name twice")
    return found


def read(file: Path, kind: Any) -> tuple[Any, bool | None]:
    """The data of a JSON file, and whether its checksum fits; None if it has none."""
    data = read_bytes(file, JSON_BYTES)
    try:
        document = parse(data)
        conform(document, kind)
    except UserError as error:
        raise UserError(f"'{file}' is damaged: {error}.") from None
    intact = None
    if isinstance(document, dict) and document.pop("crc32", None) is not None:
        *_, seal = (None, *SEAL.finditer(data))
        intact = seal is not None and _sum(data[: seal.start()]) == seal[1]
    return document, intact


def read_lines(file: Path, kind: Any) -> list[Any]:
    """The intact lines of a file of JSON lines; damaged ones are left out.

    A damaged byte costs its own line only, even if it is the end of a line.
    """
    if not os.path.lexists(file):
        return []
    return lines_in(read_bytes(file, LINES_BYTES), kind)


def lines_in(data: bytes, kind: Any) -> list[Any]:
    """The intact lines of a part of such a file."""
    start, found = 0, []
    for seal in SEAL.finditer(data):
        line = data[start : seal.start()].rpartition(b"\n")[2]
        start = seal.end()
        for text in (line, line[1:]):  # the end of the line before may be damaged
            if _sum(text) == seal[1]:
                with contextlib.suppress(UserError):
                    document = parse(text + b"}")
                    conform(document, kind)
                    found.append(document)
                break
    return found


def _sum(data: bytes) -> bytes:
    return b"%08x" % zlib.crc32(data)


# Writing


def sealed(document: dict[str, Any], indent: int | None = None) -> str:
    """A document as JSON with its checksum as the last entry."""
    text = json.dumps(document, indent=indent, allow_nan=False)[:-1].rstrip()
    gap = " " if indent is None else "\n" + " " * indent
    end = "}" if indent is None else "\n}"
    return f'{text},{gap}"crc32": "{_sum(text.encode()).decode()}"{end}\n'


def put(handle: Any, data: bytes) -> None:
    """Write to an open file and flush it to disk: all that is written goes by here."""
    handle.write(data)
    handle.flush()
    os.fsync(handle.fileno())


@contextlib.contextmanager
def on_disk(file: Path) -> Iterator[None]:
    """Turn what a disk refuses into one sentence."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"'{file}' cannot be written: {error.strerror}.") from error


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A name to write to, which takes the file's place at the end: whole or not at all.

    Readers see the old file or the new one; where a link was there is a file then.
    """
    fresh = file.with_name(f"{FRESH}{os.getpid()}-{file.name}")
    with on_disk(file):
        try:
            fresh.unlink(missing_ok=True)
            yield fresh
            fresh.replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        sync_folder(file.parent)


def write(file: Path, data: str | bytes) -> None:
    """Replace a file in one step and flush it to disk."""
    with replacing(file) as fresh, fresh.open("xb") as handle:
        put(handle, data if isinstance(data, bytes) else data.encode())


def append(file: Path, text: str) -> None:
    """Add lines to a file and flush it to disk."""
    with on_disk(file), file.open("ab") as handle:
        put(handle, text.encode())


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where the system can."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# One writer


_HELD: set[int] = set()  # open files whose locks this process holds


@contextlib.contextmanager
def locked(file: Path, what: str, *, wait: bool = False) -> Iterator[bool]:
    """Be the only one that holds `file`; False if its disk has no locks.

    The system frees the lock when the process ends, however it ends, so that none is
    ever left over; the file stays and says who held it last. Network disks pass the
    lock on to their server. A process that this one forks does not hold it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(file, flags, 0o666)
    except OSError as error:
        raise UserError(
            f"{what} cannot be written: {error.strerror} ('{file}')."
        ) from None
    _HELD.add(handle)
    try:
        held = _lock(handle, what, wait)
        with contextlib.suppress(OSError):  # only words for others
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        yield held
    finally:
        if handle in _HELD:  # not in a process that was forked since
            _HELD.discard(handle)
            os.close(handle)


def _lock(handle: int, what: str, wait: bool) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(handle).st_nlink:
                raise UserError(f"{what} was removed just now; try again.")
            return True
        except (BlockingIOError, PermissionError):
            if not wait:
                words = os.pread(handle, 200, 0).decode(errors="replace").split()
                who = f" {words[0]} on {words[1]}" if len(words) == 2 else ""
                raise UserError(
                    f"{what} is in use by process{who}; wait until it has ended."
                ) from None
            time.sleep(0.2)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return False


def _let_go() -> None:
    for handle in _HELD:
        os.close(handle)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)
