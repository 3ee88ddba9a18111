"""The host's side of a sandbox: the command that enters it, and its environment.

Unix sockets of the host can break a sandbox: a service manager, a container engine or an agent executes requests that
the sandbox forbids. As files, they are not affected by network namespaces, and Landlock does not restrict connections.
"""

from __future__ import annotations

import fnmatch
import json
import os
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from domain import errors
from process import settings

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
"""Paths that our programs must be able to read."""
MORE = "TUNESMITH_ENGINE_ENVIRONMENT"
"""The setting ``engine_environment``."""
WRITABLE = "TUNESMITH_ENGINE_WRITABLE"
"""The setting ``engine_writable``."""

_ENTER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tuner.sandbox import entering; entering.main()"
_PROBE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tuner.sandbox import entering; entering.probe()"
_KEPT = (
    # Programs, locale, time zone and files.
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_CACHE_HOME", "LD_*"),
    # Compilers and their variables.
    *("CC", "CXX", "CPATH", "LIBRARY_PATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    # TVM and its libraries, and devices.
    *("TVM_*", "TOPHUB_LOCATION", "OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "MALLOC_*"),
    *("CUDA_*", "CUDNN_*", "NVIDIA_*", "ROCM_*", "HIP_*", "TUNESMITH_ENGINE_PLUGINS", "TUNESMITH_ENGINE_SESSION"),
)
"""Allowed variables; anything else, such as an unknown credential, is not passed on."""
_SECRETS_AT_HOME = (".aws", ".azure", ".config/gcloud", ".config/gh", ".docker", ".git-credentials", ".gnupg", ".kube")
_SECRETS = (*_SECRETS_AT_HOME, ".netrc", ".pgpass", ".pypirc", ".ssh")
_SECRET_FOLDERS = ("/run/secrets", "/var/run/secrets")
_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Suffixes of SQLite's additional files, which contain data of the database."""
_PRIVATE_FILES = (
    *("server.json", "token", "token.partial", "run", "broker"),
    *(f"db.sqlite3{suffix}" for suffix in _SQLITE_SUFFIXES),
)
"""In the home folder: the service's token, the database, and the broker's socket and data."""
_SHARED_FOLDERS = ("work", "logs")
"""In the home folder: files of running jobs, and engine logs. An engine has its own log open."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one engine process; see setrlimit(2). None and 0 mean no limit."""

    memory_bytes: int | None = None
    """Address space, including reservations; GPU runtimes reserve more than any machine has."""
    data_bytes: int | None = None
    """Private writable memory, without reservations."""
    cpu_seconds: int | None = None
    file_bytes: int | None = None
    """Size of each written file."""
    offline: bool = False
    """Whether to allow no network except an own loopback, or, if the kernel does not permit that, no Internet
    sockets."""
    hidden: tuple[str, ...] = ()
    """Files and folders that appear empty, if the kernel permits it."""
    shown: tuple[str, ...] = ()
    """Paths within hidden folders that stay visible, if they exist when the engine starts."""
    writable: tuple[str, ...] = ()
    """Folders whose files may be changed, if they exist when the engine starts; all others are read-only, if the
    kernel permits it. A link in place of such a folder is not followed."""
    sockets: tuple[str, ...] = ()
    """Sockets that may not be connected to, hidden as above; Landlock cannot restrict this."""

    def command(self) -> list[str]:
        """Return the command that precedes the program and its arguments."""
        return [*_python(_ENTER), json.dumps(asdict(self))]

    @property
    def environment(self) -> dict[str, str]:
        """Adjust variables of libraries that reserve address space for every core, which could exhaust the limit."""
        if self.memory_bytes is None:
            return {}
        return {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


def probe_command() -> list[str]:
    """Return the command of a program that reports the strength of the sandbox."""
    return [*_python(_PROBE), __file__]


def _python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, str(ROOT)]


def hidden(home: Path | None, outer: Mapping[str, str]) -> tuple[str, ...]:
    """Return paths with credentials: those of the service, of the user, and secret files named in ``outer``,
    the host's environment; and shared folders with data of other jobs."""
    person = Path(outer.get("HOME") or "/nonexistent")
    named = [value for name, value in outer.items() if name.startswith("TUNESMITH_") and name.endswith("_FILE")]
    paths = [
        *(home.absolute() / name for name in _PRIVATE_FILES if home is not None),
        *(Path(each) for name in _SHARED_FOLDERS if home is not None for each in hideable(home / name)),
        *(person / name for name in _SECRETS),
        *map(Path, [*_SECRET_FOLDERS, *named, *_database(outer)]),
    ]
    # Up to Python 3.13, pathlib raises if a parent folder is not searchable; the engine cannot search it either.
    return tuple(str(path) for path in paths if path.is_absolute() and os.path.exists(path))  # noqa: PTH110


def writable(outer: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that all engines may write, from the host's environment."""
    return tuple(os.path.abspath(path.strip()) for path in outer.get(WRITABLE, "").split(",") if path.strip())  # noqa: PTH100


def hideable(folder: Path, *needed: Path) -> tuple[str, ...]:
    """Return the folder, unless it contains paths that engines need to start, or ``needed`` ones.

    Links are resolved, as the target is hidden.
    """
    real = Path(os.path.realpath(folder))
    kept = (os.path.realpath(path) for path in (*PROGRAM, Path(tempfile.gettempdir()), *needed))
    return () if any(Path(path).is_relative_to(real) for path in kept) else (str(folder.absolute()),)


def _database(outer: Mapping[str, str]) -> list[str]:
    """Return the files of a SQLite database outside of the home folder."""
    try:
        url = settings.given("TUNESMITH_DATABASE_URL", outer) or ""
    except errors.ConfigurationError:
        # No database was opened by this URL.
        return []
    kind, _, rest = url.partition("://")
    file = rest.partition("/")[2].partition("?")[0].removeprefix("file:")
    if kind.partition("+")[0] != "sqlite" or not file:
        return []
    return [os.path.abspath(file) + suffix for suffix in _SQLITE_SUFFIXES]  # noqa: PTH100 - follows no link


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's environment, from the host's."""
    more = [name.strip() for name in outer.get(MORE, "").split(",") if name.strip()]
    return {name: value for name, value in outer.items() if _matches(name, [*_KEPT, *more])}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def set_data_limit(pid: int, data_bytes: int | None) -> None:
    """Change ``data_bytes`` of a running process, up to what it was started with. Raises ProcessLookupError."""
    _, most = resource.prlimit(pid, resource.RLIMIT_DATA)
    wanted = [each for each in (data_bytes, most) if each is not None and each != resource.RLIM_INFINITY]
    resource.prlimit(pid, resource.RLIMIT_DATA, (min(wanted, default=resource.RLIM_INFINITY), most))


def memory_of_host() -> int:
    """Return the memory in bytes that this process and its children may use: the machine's, or the container's
    limit."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found = min(found, int(text))
    return found


_HOST_SOCKETS = (
    # Message buses, service managers, and displays.
    *("/run/dbus", "/run/systemd/private", "/run/snapd.socket", "/run/libvirt", "/tmp/.X11-unix"),  # noqa: S108
    # Container engines.
    *("/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/run/podman", "/run/crio"),
    *("/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket"),
    # Servers that authenticate users by uid.
    *("/run/postgresql", "/run/mysqld", "/run/redis", "/run/valkey"),
)
_USER_SOCKETS = ("", "bus", "systemd", "docker.sock", "containerd", "podman", "gnupg", "keyring")
"""In the user's runtime folder: the folder itself, or these sockets if the home or temporary folder is inside of it."""


def leading_out(home: Path | None, outer: Mapping[str, str]) -> tuple[str, ...]:
    """Return existing sockets, and folders mainly of sockets, that lead out of a sandbox; ``outer`` is the
    host's environment."""
    folders = [f"/run/user/{os.getuid()}", outer.get("XDG_RUNTIME_DIR", "")]
    paths = [
        *_HOST_SOCKETS,
        *(str(Path(folder) / name) for folder in folders if folder for name in _USER_SOCKETS),
        *_agent(outer.get("SSH_AUTH_SOCK", "")),
        # The broker's, if the home folder's path is too long for a socket; see ``worker.broker``.
        *(f"{root}/tunesmith-{os.getuid()}" for root in (tempfile.gettempdir(), "/tmp")),  # noqa: S108
    ]
    needed = [] if home is None else [home]
    there = (Path(path) for path in dict.fromkeys(paths) if os.path.exists(path))  # noqa: PTH110 - see ``hidden``
    return tuple(str(path) for path in there if path.is_absolute() and hideable(path, *needed))


def _agent(path: str) -> list[str]:
    """Return the folder that an agent created for its socket, or only the socket in a shared folder."""
    if not path:
        return []
    folder = Path(path).parent
    try:
        alone = all(entry.is_socket() for entry in folder.iterdir())
    except OSError:
        return [path]
    return [str(folder) if alone else path]
