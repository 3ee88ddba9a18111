"""What the settings of every package are made from: variables of the environment, or files that these name."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from configuration import secret_files
from domain import errors

PREFIX = "TUNESMITH_"


class Settings(BaseSettings):
    """A field ``token`` is ``TUNESMITH_TOKEN``, or stands in the file that ``TUNESMITH_TOKEN_FILE`` names."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, validate_default=True)

    def __init__(self, **values: Any) -> None:
        """Raises ConfigurationError, which names the variables and never their values."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            wrong = "; ".join(f"{variable(str(each['loc'][0]))}: {each['msg']}" for each in found)
            hint = "docs/settings.md tells what each setting takes."
            raise errors.ConfigurationError(f"a setting cannot be used: {wrong}", hint=hint) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Files first: an empty variable beside a file counts as not set.
        return init_settings, _Files(settings_cls), env_settings


def variable(field: str) -> str:
    """The environment's name of a field."""
    return f"{PREFIX}{field}".upper()


class _Files(PydanticBaseSettingsSource):
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return secret_files.value_of(variable(field_name)), field_name, self.field_is_complex(field)

    def __call__(self) -> dict[str, Any]:
        found = {}
        for name, field in self.settings_cls.model_fields.items():
            text, _, is_complex = self.get_field_value(field, name)
            if text is not None:
                found[name] = self.prepare_field_value(name, field, text, is_complex)
        return found
