"""A setting is wrong or missing: of the client, or the token that it sends."""

from __future__ import annotations

from tunesmith.errors.base import TunesmithError


class ConfigurationError(TunesmithError):
    code = "configuration_error"


class DatabaseDamaged(ConfigurationError):
    code = "database_damaged"


class ForeignBlobStore(ConfigurationError):
    code = "blob_store_foreign"


class Unauthorized(ConfigurationError):
    code = "unauthorized"
    default_hint = (
        "Set TUNESMITH_TOKEN, or the file that TUNESMITH_TOKEN_FILE names, to a token of the server; "
        "its own is in server.json of its home folder."
    )


class TokenExpired(Unauthorized):
    code = "token_expired"


class Forbidden(ConfigurationError):
    code = "forbidden"


class MissingScope(Forbidden):
    code = "missing_scope"
