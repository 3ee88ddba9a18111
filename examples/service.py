"""A tuned model of one input behind HTTP: MODEL=best.tar uvicorn service:app

curl -H 'Content-Type: application/octet-stream' --data-binary @image.float32 localhost:8000/run
"""

import os
from typing import Annotated, Any

import numpy as np
from fastapi import Body, FastAPI, HTTPException

from tunesmith.runtime import InferenceSession

app = FastAPI()
session = InferenceSession(os.environ["MODEL"])
[model_input] = session.get_inputs()
names = [output.name for output in session.get_outputs()]


@app.post("/run")
def run(body: Annotated[bytes, Body(media_type="application/octet-stream")]) -> dict[str, Any]:
    """Take the input's bytes, and return each output as lists. FastAPI calls it in threads of its own."""
    try:
        given = np.frombuffer(body, model_input.dtype).reshape(model_input.shape)
    except ValueError as error:
        raise HTTPException(422, str(error)) from error
    outputs = session.run(names, {model_input.name: given})
    return {name: array.tolist() for name, array in zip(names, outputs, strict=True)}
