"""Run tuned models with numpy alone: no TVM, no server.

    from tunesmith.runtime import InferenceSession

    session = InferenceSession("model.tar")
    [scores] = session.run(None, {"image": image})

It needs numpy, which the extra ``run`` of this package installs. The model is native code from the bundle: load
bundles of people whom you trust.
"""

from tunesmith.runtime.loading import LoadError
from tunesmith.runtime.sessions import InferenceSession, ModelMetadata, NoSuchSize, RunError, TensorInfo

__all__ = ["InferenceSession", "LoadError", "ModelMetadata", "NoSuchSize", "RunError", "TensorInfo"]
