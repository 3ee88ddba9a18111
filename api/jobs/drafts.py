"""Request bodies as pydantic models; that of a tuning request is generated from ``tunesmith.job_draft``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from tunesmith import job_draft

_Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


_Size = Annotated[int, BeforeValidator(_number)]
_MOST_FREQUENT = 1e12
_SIZE: TypeAdapter[int] = TypeAdapter(_Size)
_FREQUENCY: TypeAdapter[float] = TypeAdapter(Annotated[float, BeforeValidator(_number), Field(gt=0, le=_MOST_FREQUENT)])
_SIZE_SCHEMA = {"type": "integer"}


def _dimension(value: Any) -> Any:
    """Validate a size, a list of sizes, or an object from sizes to frequencies."""
    if isinstance(value, list):
        return [_SIZE.validate_python(size) for size in value]
    if isinstance(value, dict):
        return {_SIZE.validate_python(size): _FREQUENCY.validate_python(often) for size, often in value.items()}
    return _SIZE.validate_python(value)


_Dimension = Annotated[
    Any,
    BeforeValidator(_dimension),
    WithJsonSchema(
        {
            "anyOf": [
                _SIZE_SCHEMA,
                {"type": "array", "items": _SIZE_SCHEMA, "minItems": 1},
                {
                    "type": "object",
                    "propertyNames": {"pattern": "^[1-9][0-9]{0,9}$"},
                    "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST_FREQUENT},
                    "minProperties": 1,
                },
            ]
        }
    ),
]
_Shape = Annotated[list[_Size], Field(max_length=16)]


class ObservedShapes(TypedDict):
    """Shapes with which a model is run."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    input_shapes: dict[str, _Shape]
    count: Annotated[int, BeforeValidator(_number), Field(ge=1, le=2**53, description="Number of runs.")]


_KINDS: dict[str, Any] = {
    "labels": dict[_Label, _Label],
    "runtimes": list[Annotated[str, StringConstraints(max_length=100)]],
    "input_shapes": dict[str, Annotated[list[_Dimension], Field(max_length=16)]],
    "frequencies": list[ObservedShapes],
    "padding": dict[str, Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]],
    "secret": SecretStr | None,
}
"""Types of options that are stricter than their annotation, by name."""
_UndocumentedNull = SkipJsonSchema[None]
_OPTION_METADATA = {"cli", "form", "choices", "null_means_absent"}
_TEXT_CHECKS = ("min_length", "max_length", "pattern")


class Draft(BaseModel):
    """Base of request bodies, which rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _means_what_it_says(cls, value: Any) -> Any:
        """Reject booleans for numbers: pydantic would accept false as 0."""
        for name, given in value.items() if isinstance(value, dict) else ():
            field = cls.model_fields.get(name)
            if field and bool not in (field.annotation, *get_args(field.annotation)):
                _number(given)
        return check_text(value)


class _Job(Draft):
    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["model"]}, {"required": ["like"]}]})


def _model(kind: type, base: type[Draft] = Draft) -> type[Draft]:
    """Create the model of a dataclass of options, recursively."""
    hints = get_type_hints(kind)
    found: dict[str, Any] = {}
    for one in fields(kind):
        hint = _KINDS.get(one.name, hints[one.name])
        nested = job_draft.bare(hint)
        if is_dataclass(nested):
            made = _model(nested)  # type: ignore[arg-type]
            hint = made if nested is hint else made | None
        checks = {name: value for name, value in one.metadata.items() if name not in _OPTION_METADATA}
        if one.metadata.get("null_means_absent"):
            text = {name: checks.pop(name) for name in _TEXT_CHECKS if name in checks}
            hint = Annotated[str, StringConstraints(**text)] | _UndocumentedNull
        if one.metadata.get("choices"):
            # Unknown words are rejected later, with near matches.
            checks["json_schema_extra"] = {"enum": [*one.metadata["choices"], *([None] if one.default is None else [])]}
        if one.default_factory is not MISSING:
            checks["default_factory"] = made if is_dataclass(nested) else one.default_factory
        elif one.default is not MISSING:
            checks["default"] = one.default
        found[one.name] = (hint, Field(**checks))
    return create_model(kind.__name__, __base__=base, __doc__=kind.__doc__, **found)


_JobModel = _model(job_draft.JobDraft, _Job)


@dataclass(kw_only=True)
class JobDraft(job_draft.JobDraft):
    """A tuning request whose fields are valid, each by itself."""

    given_fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The fields present in the request, including nulls; the others are defaults."""


def _of_model(model: BaseModel) -> JobDraft:
    draft: JobDraft = _typed(JobDraft, model, given_fields=_plain(model.model_dump(exclude_unset=True)))
    if draft.like is None and draft.model is None:
        raise ValueError("set model, or like (a job whose model is used)")
    if draft.like is None and draft.rpc and not (draft.rpc.tracker and draft.rpc.key):
        raise ValueError("rpc needs both tracker and key")
    return draft


def _typed(kind: type, model: BaseModel, **more: Any) -> Any:
    hints = get_type_hints(kind)
    values = dict(more)
    for name in type(model).model_fields:
        value = getattr(model, name)
        values[name] = _typed(job_draft.bare(hints[name]), value) if isinstance(value, BaseModel) else _plain(value)
    return kind(**values)


def _plain(value: Any) -> Any:
    """Replace secrets by their values."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value.get_secret_value() if isinstance(value, SecretStr) else value


class _Checked:
    """Annotation that converts a JSON document to a JobDraft."""

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_of_model, handler.generate_schema(_JobModel))


JobBody = Annotated[JobDraft, _Checked()]
ADAPTER: TypeAdapter[JobDraft] = TypeAdapter(JobBody)


def whole(draft: JobDraft) -> dict[str, Any]:
    """Return all fields of the request, including defaults."""
    found = asdict(draft)
    del found["given_fields"]
    return found


def check_text(value: Any) -> Any:
    """Return ``value``, which JSON was parsed to. Raises ValueError for a text or name that cannot be stored."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, str):
            _check_one(found)
        elif isinstance(found, dict):
            left += [*found.keys(), *found.values()]
        elif isinstance(found, list):
            left += found
    return value


def _check_one(text: str) -> None:
    if "\0" in text:
        raise ValueError("text must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text must be valid Unicode; it contains an unpaired surrogate") from None
