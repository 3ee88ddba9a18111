"""What the caller sent is wrong."""

from __future__ import annotations

from domain.errors.base import TunesmithError


class InvalidRequest(TunesmithError):
    code = "invalid_request"
    default_hint = "Correct what the message names; /docs shows what each request takes."


class InvalidModel(InvalidRequest):
    code = "invalid_model"
    default_hint = "Upload the bytes of one .onnx file that onnx.checker accepts."


class UnsupportedOperators(InvalidRequest):
    code = "unsupported_operators"
    default_hint = "See details.operators for names and counts; replace them or use another engine."


class ShapeRequired(InvalidRequest):
    code = "shape_required"
    default_hint = "Give every dynamic dimension a value, for example --input-shape x:1,3,224,224."


class ShapeMismatch(InvalidRequest):
    code = "shape_mismatch"
    default_hint = "Name an input of the model and give as many dimensions as it has, fixed ones unchanged."


class InvalidInputs(InvalidRequest):
    code = "invalid_inputs"
    default_hint = "Give an .npz file with one array per input: names, shapes and dtypes as in manifest.json."


class InvalidBundle(InvalidRequest):
    code = "invalid_bundle"
    default_hint = "Download the artifact again; its files must match the digests in manifest.json."


class UnknownTarget(InvalidRequest):
    code = "unknown_target"
    default_hint = "Use 'native' for the worker's own CPU, or a TVM target such as 'llvm -mcpu=skylake-avx512'."


class UnsupportedTarget(InvalidRequest):
    code = "unsupported_target"
    default_hint = "The metaschedule tuner compiles for llvm and cuda, autotvm and ansor for llvm."


class UnknownTuner(InvalidRequest):
    code = "unknown_tuner"
    default_hint = "Use one of details.known, or leave it out: the service then picks one."


class UnknownPrecision(InvalidRequest):
    code = "unknown_precision"
    default_hint = "Use one of details.known, or leave it out for f32."


class UnknownRunner(InvalidRequest):
    code = "unknown_runner"
    default_hint = "Use one of details.known, or leave it out to measure on the worker itself."


class InvalidOption(InvalidRequest):
    code = "invalid_option"
    default_hint = "Leave it out, or name the tuner and runner that it belongs to."


class InvalidOperator(InvalidRequest):
    code = "invalid_operator"
    default_hint = "Describe one operator with its shapes: 'conv2d x=1,64,56,56 w=64,64,3,3 padding=1'."


class InvalidBudget(InvalidRequest):
    code = "invalid_budget"
    default_hint = "Give a positive number of trials, a positive number of seconds, or both."


class InvalidPageToken(InvalidRequest):
    code = "invalid_page_token"
    default_hint = "Pass next_page_token of the previous page unchanged, or none for the first page."


class InvalidWebhook(InvalidRequest):
    code = "invalid_webhook"
    default_hint = "Name an https:// address that everyone can reach; an admin allows others: TUNESMITH_WEBHOOK_HOSTS."


class BlobTooLarge(InvalidRequest):
    code = "blob_too_large"
    default_hint = "Send at most details.limit_bytes; an admin can raise TUNESMITH_MAX_MODEL_BYTES for ONNX models."


class IdempotencyMismatch(InvalidRequest):
    code = "idempotency_mismatch"
    default_hint = "Use a new Idempotency-Key for a different request."
