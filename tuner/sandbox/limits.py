"""The host's side of one engine's sandbox: the command that enters it, and the environment inside.

Unix sockets of the host lead out of a sandbox: a service manager, a container engine or an agent does on request what
the sandbox forbids. They are files, so a network namespace does not close them, and Landlock does not restrict
connecting to them.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from domain import errors
from process import settings

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
"""What must stay readable for anything of ours to start."""
MORE = "TUNESMITH_ENGINE_ENVIRONMENT"
"""The setting ``engine_environment``."""

_ENTER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tuner.sandbox import entering; entering.main()"
_PROBE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tuner.sandbox import entering; entering.probe()"
_KEPT = (
    # Programs, texts, times and files.
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_CACHE_HOME", "LD_*"),
    # Compilers and what they look at.
    *("CC", "CXX", "CPATH", "LIBRARY_PATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    # TVM, its companions, and devices.
    *("TVM_*", "TOPHUB_LOCATION", "OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "MALLOC_*"),
    *("CUDA_*", "CUDNN_*", "NVIDIA_*", "ROCM_*", "HIP_*", "TUNESMITH_ENGINE_PLUGINS", "TUNESMITH_ENGINE_SESSION"),
)
"""An allow-list: a credential that nobody thought of is not passed on either."""
_SECRETS_AT_HOME = (".aws", ".azure", ".config/gcloud", ".config/gh", ".docker", ".git-credentials", ".gnupg", ".kube")
_SECRETS = (*_SECRETS_AT_HOME, ".netrc", ".pgpass", ".pypirc", ".ssh")
_SECRET_FOLDERS = ("/run/secrets", "/var/run/secrets")
_OF_SQLITE = ("", "-wal", "-shm", "-journal")
"""What SQLite writes beside a database, too, holds what is in it."""
_OURS = (
    *("server.json", "token", "token.partial", "run", "broker"),
    *(f"db.sqlite3{suffix}" for suffix in _OF_SQLITE),
)
"""Under the home folder: the service's token, the database, and the broker's socket and what it keeps."""
_OF_EVERYBODY = ("work", "logs")
"""Under the home folder: the files of jobs at work, and what engines logged. An engine has its own log open."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one engine process may use; see setrlimit(2). None and 0 set no limit."""

    memory_bytes: int | None = None
    """Of address space, which is more than it touches; GPU runtimes reserve more than any machine has."""
    data_bytes: int | None = None
    """Of memory that only this process has and may write to: what it could touch, not what it reserved."""
    cpu_seconds: int | None = None
    file_bytes: int | None = None
    """Size of any file it writes."""
    offline: bool = False
    """Without a network beyond a loopback of its own, where the kernel lets us; else without Internet sockets."""
    hidden: tuple[str, ...] = ()
    """Files and folders that look empty, where the kernel lets us."""
    shown: tuple[str, ...] = ()
    """What lies within hidden folders and is seen all the same, when it is there before the engine starts."""
    sockets: tuple[str, ...] = ()
    """The same with what may be read, but not connected to; Landlock cannot keep anyone from that."""

    def command(self) -> list[str]:
        """What to write before the program and its arguments."""
        return [*_python(_ENTER), json.dumps(asdict(self))]

    @property
    def environment(self) -> dict[str, str]:
        """Address space that libraries reserve for every core counts, so that many cores would use it all up."""
        if self.memory_bytes is None:
            return {}
        return {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


def probe_command() -> list[str]:
    """Of a program that enters a sandbox and says how strong it is."""
    return [*_python(_PROBE), __file__]


def _python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, str(ROOT)]


def hidden(home: Path | None, outer: Mapping[str, str]) -> tuple[str, ...]:
    """What holds credentials: ours, the user's, and files that ``outer``, the host's environment, names as secrets; and
    what is everybody's."""
    person = Path(outer.get("HOME") or "/nonexistent")
    named = [value for name, value in outer.items() if name.startswith("TUNESMITH_") and name.endswith("_FILE")]
    paths = [
        *(home.absolute() / name for name in _OURS if home is not None),
        *(Path(each) for name in _OF_EVERYBODY if home is not None for each in hideable(home / name)),
        *(person / name for name in _SECRETS),
        *map(Path, [*_SECRET_FOLDERS, *named, *_database(outer)]),
    ]
    # pathlib raises, up to Python 3.13, where a folder above may not be searched; the engine may not search it either.
    return tuple(str(path) for path in paths if path.is_absolute() and os.path.exists(path))  # noqa: PTH110


def hideable(folder: Path, *needed: Path) -> tuple[str, ...]:
    """The folder, unless in it lies what engines need to start or what is ``needed`` besides.

    Links count for what they lead to, as that is what is hidden.
    """
    real = Path(os.path.realpath(folder))
    kept = (os.path.realpath(path) for path in (*PROGRAM, Path(tempfile.gettempdir()), *needed))
    return () if any(Path(path).is_relative_to(real) for path in kept) else (str(folder.absolute()),)


def _database(outer: Mapping[str, str]) -> list[str]:
    """The files of a SQLite database that is elsewhere than in the home folder."""
    try:
        url = settings.given("TUNESMITH_DATABASE_URL", outer) or ""
    except errors.ConfigurationError:
        # Nothing opened a database by it, then.
        return []
    kind, _, rest = url.partition("://")
    file = rest.partition("/")[2].partition("?")[0].removeprefix("file:")
    if kind.partition("+")[0] != "sqlite" or not file:
        return []
    return [os.path.abspath(file) + suffix for suffix in _OF_SQLITE]  # noqa: PTH100 - of text, and no link followed


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """What an engine gets of the host's environment."""
    more = [name.strip() for name in outer.get(MORE, "").split(",") if name.strip()]
    return {name: value for name, value in outer.items() if _matches(name, [*_KEPT, *more])}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def memory_of_host() -> int:
    """Bytes that this process and its children may use: of the machine, or of the container that it is in."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found = min(found, int(text))
    return found


_OF_HOST = (
    # Messages between programs, what starts programs for others, and screens with their keyboards.
    *("/run/dbus", "/run/systemd/private", "/run/snapd.socket", "/run/libvirt", "/tmp/.X11-unix"),  # noqa: S108
    # Container engines.
    *("/run/docker.sock", "/var/run/docker.sock", "/run/containerd", "/run/podman", "/run/crio"),
    *("/var/lib/lxd/unix.socket", "/var/snap/lxd/common/lxd/unix.socket"),
    # Servers that know a user by name alone.
    *("/run/postgresql", "/run/mysqld", "/run/redis", "/run/valkey"),
)
_OF_USER = ("", "bus", "systemd", "docker.sock", "containerd", "podman", "gnupg", "keyring")
"""In the user's folder of sockets: all of it, and what to hide where the home or temporary folder lies in there."""


def leading_out(home: Path | None, outer: Mapping[str, str]) -> tuple[str, ...]:
    """Those that exist, and folders that hold little else. ``outer`` is the host's environment."""
    folders = [f"/run/user/{os.getuid()}", outer.get("XDG_RUNTIME_DIR", "")]
    paths = [
        *_OF_HOST,
        *(str(Path(folder) / name) for folder in folders if folder for name in _OF_USER),
        *_agent(outer.get("SSH_AUTH_SOCK", "")),
        # Of the broker, where the home folder's path is too long for a socket: see ``worker.broker``.
        *(f"{root}/tunesmith-{os.getuid()}" for root in (tempfile.gettempdir(), "/tmp")),  # noqa: S108
    ]
    needed = [] if home is None else [home]
    there = (Path(path) for path in dict.fromkeys(paths) if os.path.exists(path))  # noqa: PTH110 - see ``hidden``
    return tuple(str(path) for path in there if path.is_absolute() and hideable(path, *needed))


def _agent(path: str) -> list[str]:
    """The folder that an agent made for its socket, or the socket alone where it put it among others' files."""
    if not path:
        return []
    folder = Path(path).parent
    try:
        alone = all(entry.is_socket() for entry in folder.iterdir())
    except OSError:
        return [path]
    return [str(folder) if alone else path]
