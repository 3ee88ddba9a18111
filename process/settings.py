"""Base of all settings: environment variables, or files that they name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from domain import destinations, errors
from process import logs, tracing
from process.logs import LogFormat, LogLevel

PREFIX = "TUNESMITH_"


class Settings(BaseSettings):
    """Base of settings. A field ``token`` is ``TUNESMITH_TOKEN``, or the content of the file
    ``TUNESMITH_TOKEN_FILE``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, validate_default=True)

    def __init__(self, **values: Any) -> None:
        """Raises ConfigurationError, which names variables but never their values."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            wrong = "; ".join(f"{variable(str(each['loc'][0]))}: {each['msg']}" for each in found)
            hint = "docs/reference/settings.md describes each setting."
            raise errors.ConfigurationError(f"invalid setting: {wrong}", hint=hint) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Files first: an empty variable next to a file counts as not set.
        return init_settings, _Files(settings_cls), env_settings


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


class HomeSettings(Settings):
    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=Path("~/.local/share/tunesmith"), description="Folder for all state and all engine environments."
    )


class ServiceSettings(Settings):
    """Settings that the API and the workers share."""

    broker_url: str | None = Field(
        default=None,
        description="URL of the message broker (Redis or Valkey); by default the one that `serve` starts.",
    )
    worker_alive_seconds: float = Field(
        default=60.0, gt=0, description="Seconds without a heartbeat after which a worker counts as dead."
    )
    webhook_hosts: Annotated[str, AfterValidator(destinations.checked_hosts)] = Field(
        default="", description=destinations.ALLOWED_HOSTS
    )
    log_format: LogFormat = Field(default=LogFormat.TEXT, description=logs.FORMAT)
    log_level: LogLevel = Field(default=LogLevel.INFO, description=logs.LEVEL)
    otel: bool = Field(default=False, description=tracing.SETTING)


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return f"{PREFIX}{field}".upper()


class _Files(PydanticBaseSettingsSource):
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return value_of(variable(field_name)), field_name, self.field_is_complex(field)

    def __call__(self) -> dict[str, Any]:
        found = {}
        for name, field in self.settings_cls.model_fields.items():
            text, _, is_complex = self.get_field_value(field, name)
            if text is not None:
                found[name] = self.prepare_field_value(name, field, text, is_complex)
        return found


SUFFIX = "_FILE"
_MOST_BYTES = 64 * 1024


def value_of(variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the content of the file in ``VARIABLE_FILE`` without trailing newline; None if that is not set.

    Raises ConfigurationError for an unreadable or empty file, and if both variables are set.
    """
    name = variable + SUFFIX
    path = environment.get(name)
    if not path:
        return None
    if environment.get(variable):
        raise errors.ConfigurationError(f"{variable} and {name} are both set", hint="Set one of them.")
    text = _read(name, Path(path)).rstrip("\r\n")
    if not text.strip():
        hint = f"Write the value of {variable} to it."
        raise errors.ConfigurationError(f"the file {path}, which {name} names, is empty", hint=hint)
    return text


def given(variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the variable, or the content of its file; None if neither is set. Raises ConfigurationError."""
    return value_of(variable, environment) or environment.get(variable) or None


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise errors.ConfigurationError(
            f"cannot read {path}, which {name} names: {error.strerror or error}",
            hint="The file must exist and be readable by the user that runs the process.",
        ) from None
    if len(data) > _MOST_BYTES:
        raise errors.ConfigurationError(f"the file {path}, which {name} names, has more than {_MOST_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise errors.ConfigurationError(f"the file {path}, which {name} names, is not UTF-8 text") from None
