"""Digests, sha256 in hex, by what they are digests of: one in place of another is a type error."""

from __future__ import annotations

from typing import NewType

FileDigest = NewType("FileDigest", str)
"""Of a file's bytes, such as the prepared model that an engine reads."""
BlobDigest = NewType("BlobDigest", FileDigest)
"""Of bytes in the blob store, which finds them by it."""
ModelDigest = NewType("ModelDigest", BlobDigest)
"""Of an uploaded model's bytes."""
ArtifactDigest = NewType("ArtifactDigest", BlobDigest)
"""Of a published bundle's bytes."""
WorkloadDigest = NewType("WorkloadDigest", str)
"""Of a tuning task's workload key."""
ScheduleDigest = NewType("ScheduleDigest", str)
"""Of a schedule in native form."""
SecretDigest = NewType("SecretDigest", str)
"""Of a token or login code, which is never stored itself."""
