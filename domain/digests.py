"""Digests, sha256 in hex, as distinct types: mixing them up is a type error."""

from __future__ import annotations

from typing import NewType

FileDigest = NewType("FileDigest", str)
"""Digest of a file, such as the prepared model that an engine reads."""
BlobDigest = NewType("BlobDigest", FileDigest)
"""Digest and key of a blob."""
ModelDigest = NewType("ModelDigest", BlobDigest)
"""Digest of an uploaded model."""
ArtifactDigest = NewType("ArtifactDigest", BlobDigest)
"""Digest of a published bundle."""
WorkloadDigest = NewType("WorkloadDigest", str)
"""Digest of a workload key."""
ScheduleDigest = NewType("ScheduleDigest", str)
"""Digest of a schedule in native form."""
SecretDigest = NewType("SecretDigest", str)
"""Digest of a token or login code, which is not stored itself."""
