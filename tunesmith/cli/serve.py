"""What ``tunesmith serve`` starts; imported only then, and only from a checkout."""

from __future__ import annotations

from api.settings import ApiSettings
from storage.settings import StorageSettings
from worker import supervisor


def run(*, host: str | None, port: int | None) -> int:
    """Serve until a signal; returns the exit status. None leaves an option to its setting."""
    settings = ApiSettings()
    chosen = settings.port if port is None else port
    return supervisor.main(host or settings.host, chosen, StorageSettings().home)
