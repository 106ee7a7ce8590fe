"""Paths of caches: a local folder, or a store that TensorFlow's file systems open, such as gs://bucket/cache.

A StoredPath is read through tf.io.gfile and used like any other path. TensorFlow is imported with the first one.
"""

import errno
import io
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PosixPath
from types import ModuleType
from typing import BinaryIO, TypeGuard

from xtts_pipeline.errors import CacheError, OutputError, first_line_of

_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):(?P<place>/.*)", re.DOTALL)
_HOST = re.compile(r"//[^/]")
# Each request to a store costs a round trip, so requests are large.
STORED_BUFFER_BYTES = 8 << 20
_ERRNOS = {"NotFoundError": errno.ENOENT, "PermissionDeniedError": errno.EACCES, "UnauthenticatedError": errno.EACCES}


class StoredPath(PosixPath):
    """A path with a scheme: requests and reads go to the store and raise the errors of local files.

    A store has no links or devices: everything but a folder is a regular file.
    """

    def __str__(self) -> str:
        # pathlib drops the second slash.
        return super().__str__().replace(":/", "://", 1)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 (there are no links)
        """Return kind and size. Raises OSError as for a local file."""
        with _errors_of(self) as tf:
            found = tf.io.gfile.stat(str(self))
        mode = stat.S_IFDIR if found.is_directory else stat.S_IFREG
        return os.stat_result((mode, 0, 0, 1, 0, 0, found.length, 0, 0, 0))

    def lstat(self) -> os.stat_result:
        """Return the result of `stat`."""
        return self.stat()

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 (there are no links)
        """Return whether a file or folder has this name."""
        with _errors_of(self) as tf:
            return bool(tf.io.gfile.exists(str(self)))

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 (there are no links)
        """Return whether the store has anything under this name."""
        with _errors_of(self) as tf:
            return bool(tf.io.gfile.isdir(str(self)))

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def iterdir(self) -> Generator["StoredPath", None, None]:
        """Yield the entries under this name, in no order."""
        with _errors_of(self) as tf:
            names = [name.rstrip("/") for name in tf.io.gfile.listdir(str(self))]
        # A store may list the folder's own marker, whose name is empty.
        return (self / name for name in names if name)

    def read_bytes(self) -> bytes:
        """Return the whole file."""
        with open_stored(self) as file:
            return file.read()

    @contextmanager
    def write(self) -> Iterator[BinaryIO]:
        """Open a new file for writing; parent folders are created.

        In an object store the file appears when the block ends, elsewhere at once.
        """
        with _errors_of(self) as tf:
            tf.io.gfile.makedirs(str(self.parent))
            # Not every store truncates an existing file.
            if tf.io.gfile.exists(str(self)):
                tf.io.gfile.remove(str(self))
            with tf.io.gfile.GFile(str(self), "wb") as file:
                yield file

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file. Raises OSError as for a local file."""
        try:
            with _errors_of(self) as tf:
                tf.io.gfile.remove(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise


class _StoredFile(io.RawIOBase):
    """Raw file of a store for Python's buffered readers; asks for its size unless `known_bytes` is given."""

    def __init__(self, path: StoredPath, known_bytes: int | None) -> None:
        self._path = path
        # Set first: Python closes a half-made object.
        with _errors_of(path) as tf:
            self._file = tf.io.gfile.GFile(str(path), "rb")
        self._size = path.stat().st_size if known_bytes is None else known_bytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer; this is what BufferedReader gives
        with _errors_of(self._path):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _errors_of(self._path):
            start = {io.SEEK_SET: 0, io.SEEK_CUR: self._file.tell(), io.SEEK_END: self._size}[whence]
            self._file.seek(start + offset)
        return int(start + offset)

    def tell(self) -> int:
        with _errors_of(self._path):
            return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def folder_path(text: str) -> Path:
    """Return the path of a folder: a StoredPath if the text has a scheme; file:///x is /x.

    Raises ValueError if another scheme names no store, as in hdfs:///x.
    """
    uri = _URI.fullmatch(text)
    if uri is None:
        return Path(text)
    # A StoredPath would take x for the store's name.
    if uri["scheme"] == "file" and not _HOST.match(uri["place"]):
        return Path("/", uri["place"].lstrip("/"))
    if uri["place"].startswith("///") or not uri["place"].strip("/"):
        raise ValueError(f"{text} names no store; expected {uri['scheme']}://NAME/FOLDER")
    return StoredPath(text)


def user_cache() -> Path | None:
    """Return the folder of what this program keeps for the user: compiled programs, and sounds of parquet files.

    It is None for a user without a home. A relative XDG_CACHE_HOME is ignored, as its specification demands.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (home if home.is_absolute() else Path.home() / ".cache") / "xtts_pipeline"
    except RuntimeError:
        return None


def is_stored(path: Path) -> TypeGuard[StoredPath]:
    """Return whether a path lies in a store."""
    return isinstance(path, StoredPath)


def check_local(folder: Path, remedy: str) -> None:
    """Raise CacheError, ending in `remedy`, if the folder lies in a store."""
    if isinstance(folder, StoredPath):
        raise CacheError(f"{folder}: lies in a store, expected a folder of this machine; {remedy}")


def real_path(path: Path) -> Path:
    """Return a local path with links followed; Path.resolve raises RuntimeError for a link to itself."""
    return Path(os.path.realpath(path))


def own_name(path: Path) -> str:
    """Return the name of a local file or folder: a link has a name of its own, `.` and `..` have that of the folder."""
    return path.name if path.name.strip(".") else real_path(path).name


def is_within(path: Path, folder: Path) -> bool:
    """Return whether a path is a folder or lies below it, links followed."""
    if is_stored(path) or is_stored(folder):
        return folder in (path, *path.parents)
    return real_path(path).is_relative_to(real_path(folder))


def check_apart(output: Path, cache: Path, remedy: str = "choose another --output") -> None:
    """Raise OutputError, ending in `remedy`, if an output lies inside a cache, whose files its manifest lists."""
    if is_within(output, cache):
        raise OutputError(f"{output}: lies in {cache}, expected a folder apart from it; {remedy}")


def open_stored(path: "StoredPath", known_bytes: int | None = None) -> BinaryIO:
    """Open a stored file for reading; `known_bytes` is its size, if known. Raises OSError."""
    return io.BufferedReader(_StoredFile(path, known_bytes), STORED_BUFFER_BYTES)


def size_of(file: BinaryIO) -> int:
    """Return the size of a file that has just been opened."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


@contextmanager
def _errors_of(path: StoredPath) -> Iterator[ModuleType]:
    """Yield TensorFlow and turn its errors into those of local files."""
    import tensorflow as tf  # the one late import of it here: local caches need no TensorFlow

    try:
        yield tf
    except tf.errors.UnimplementedError:
        schemes = ", ".join(sorted(scheme for scheme in tf.io.gfile.get_registered_schemes() if scheme))
        raise CacheError(
            f"{path}: this TensorFlow opens no such store, it knows {schemes}; "
            "install its file system, or copy the cache"
        ) from None
    except tf.errors.OpError as error:
        message = first_line_of(error.message) or "no such file"
        raise OSError(_ERRNOS.get(type(error).__name__, errno.EIO), message, str(path)) from None
