"""A SavedModel over HTTP, with the routes and the JSON of TensorFlow Serving.

Requests that come while the model runs are answered together by its next call.
"""

import asyncio
import base64
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  the operations of tokenizers
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tensorflow.core.framework import types_pb2

from rank4class import compat, strict_json
from rank4class.pipelines.storage import files

MAX_BODY = 32 << 20  # bytes
MAX_BATCH = 256  # requests in progress, and inputs of a call of the model, unless one request has more
BODY_SECONDS = 10.0  # in which the body of a request has to arrive

Arrays = dict[str, np.ndarray]


class _Signature:
    """A signature of a model, with the specs of its inputs and outputs by name.

    TensorFlow answers the calls of several threads that wait for the model by one call of it.
    """

    def __init__(self, function: Any, threads: ThreadPoolExecutor):
        self._function = function
        self._threads = threads
        self.inputs: dict[str, tf.TensorSpec] = function.structured_input_signature[1]
        self.outputs: dict[str, tf.TensorSpec] = function.structured_outputs
        batch = tf.nondifferentiable_batch_function(1, MAX_BATCH, batch_timeout_micros=0, autograph=False)

        @tf.function(input_signature=[self.inputs], autograph=False)
        def together(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            def call(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
                return function(**dict(zip(inputs, tensors, strict=True)))

            return batch(call)(*inputs.values())

        self._together = together

    async def __call__(self, inputs: Arrays) -> Arrays:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, inputs)

    def _call(self, inputs: Arrays) -> Arrays:
        tensors = {name: tf.constant(inputs[name], spec.dtype) for name, spec in self.inputs.items()}
        try:
            outputs = self._together(tensors) if tensors else self._function()
        except tf.errors.OpError:  # of a wrong request beside it, of other shapes, or of too many inputs
            outputs = self._function(**tensors)
        return {name: tensor.numpy() for name, tensor in outputs.items()}


def app(folder: str | os.PathLike, name: str | None = None) -> Starlette:
    """Returns the ASGI application that serves a SavedModel; `state.path` is the route of the model.

    Args:
      folder: of the model, or of its versions, of which the highest number is served.
      name: of the model in the routes; None is the name of the folder that has the versions.

    Raises:
      FileNotFoundError: there is no SavedModel in the folder.
    """
    folder = os.fspath(folder).rstrip("/")
    if not files.exists(os.path.join(folder, "saved_model.pb")):
        versions = [version for version in files.names_in(folder) if version.isdigit()]
        if not versions:
            raise FileNotFoundError(f"model={folder}: no SavedModel. Write one with: rank4class export")
        folder = os.path.join(folder, max(versions, key=int))
    parent, version = os.path.split(os.path.abspath(folder))
    name = name or os.path.basename(parent if version.isdigit() else folder)
    version = version if version.isdigit() else "1"
    model = tf.saved_model.load(folder)
    threads = ThreadPoolExecutor(MAX_BATCH)
    signatures = {key: _Signature(function, threads) for key, function in model.signatures.items()}
    state = {"version": version, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    described = {
        key: {"inputs": _described(one.inputs), "outputs": _described(one.outputs)}
        for key, one in signatures.items()
    }

    async def status(_: Request) -> Any:
        return {"model_version_status": [state]}

    async def metadata(_: Request) -> Any:
        spec = {"name": name, "signature_name": "", "version": version}
        return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": described}}}

    async def predict(request: Request) -> Any:
        body = await _body(request)
        signature = _signature(signatures, body, "serving_default")
        by_row = "instances" in body
        if by_row == ("inputs" in body):
            raise HTTPException(400, 'the body needs either "instances" or "inputs".')
        outputs = _to_json(await signature(_arrays(signature, body, "instances" if by_row else "inputs")))
        if len(outputs) == 1:
            [values] = outputs.values()
        elif by_row:
            values = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
        else:
            values = outputs
        return {"predictions" if by_row else "outputs": values}

    async def classify(request: Request) -> Any:
        body = await _body(request)
        signature = _signature(signatures, body, "classify")
        if "classes" not in signature.outputs:
            raise HTTPException(400, "the signature returns no classes.")
        outputs = _to_json(await signature(_arrays(signature, body, "examples")))
        pairs = zip(outputs["classes"], outputs.get("probabilities", outputs["scores"]), strict=True)
        return {"result": [list(map(list, zip(*pair, strict=True))) for pair in pairs]}

    prefixes = [f"/v1/models/{name}", f"/v1/models/{name}/versions/{version}"]
    routes = {"": status, "/metadata": metadata, ":predict": predict, ":classify": classify}
    served = Starlette(
        routes=[
            Route(prefix + path, _route(handle), methods=["POST" if path.startswith(":") else "GET"])
            for prefix in prefixes
            for path, handle in routes.items()
        ],
        exception_handlers={
            404: _no_route,
            405: _no_route,
            HTTPException: lambda _, error: _json({"error": error.detail}, error.status_code),
            tf.errors.InvalidArgumentError: lambda _, error: _json({"error": compat.reason(error)}, 400),
        },
    )
    served.state.path, served.state.model = prefixes[0], model  # which has the variables
    return served


def _route(handle: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            return _json(await handle(request))
        except asyncio.CancelledError as error:
            raise HTTPException(503, "the server ends. Send the request again.") from error

    return respond


def _no_route(request: Request, error: Any) -> Response:
    routes = [f"{'POST' if 'POST' in route.methods else 'GET'} {route.path}" for route in request.app.routes]
    message = f"{request.method} {request.url.path}: no such route. There are: {', '.join(routes)}."
    return _json({"error": message}, error.status_code, error.headers)


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(files.to_json(content), status, headers, "application/json")


async def _body(request: Request) -> dict[str, Any]:
    """Returns the JSON object that a request sends."""
    try:
        text = (await asyncio.wait_for(_read(request), BODY_SECONDS)).decode()
        return strict_json.parse_object("body", text)
    except asyncio.TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive in {BODY_SECONDS:.0f} seconds.") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, str(error)) from error


async def _read(request: Request) -> bytearray:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MAX_BODY:
            raise HTTPException(413, f"the body has more than {MAX_BODY:,} bytes. Send fewer inputs.")
    return content


def _signature(signatures: Mapping[str, _Signature], body: Mapping[str, Any], default: str) -> _Signature:
    name = body.get("signature_name", default)
    if not isinstance(name, str) or name not in signatures:
        raise HTTPException(400, f"signature_name={name!r}: unknown. There are: {', '.join(signatures)}.")
    return signatures[name]


def _arrays(signature: _Signature, body: Mapping[str, Any], field: str) -> Arrays:
    """Returns the inputs of a signature that a body has, by row or for "inputs" by name."""
    values = body.get(field)
    specs = signature.inputs
    if field != "inputs":
        if not isinstance(values, list) or not values:
            raise HTTPException(400, f'"{field}" is no list of inputs.')
        # A value alone is that of the only feature.
        is_row = isinstance(values[0], dict) and values[0].keys() != {"b64"}
        rows = values if is_row else [{next(iter(specs), ""): value} for value in values]
        if any(not isinstance(row, dict) or row.keys() != rows[0].keys() for row in rows):
            raise HTTPException(400, f'"{field}" have different features.')
        values = {name: [row[name] for row in rows] for name in rows[0]}
    elif not isinstance(values, dict):
        values = {next(iter(specs), ""): values}
    if values.keys() != specs.keys():
        raise HTTPException(400, f"features {', '.join(values)}: the signature takes {', '.join(specs)}.")
    arrays = {name: _array(name, values[name], spec) for name, spec in specs.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        raise HTTPException(400, "the features have different numbers of inputs.")
    return arrays


# Kind of NumPy's type of a feature -> what JSON has to hold, and the kinds of its arrays.
_KINDS = {
    "O": ("strings", "O"),
    "b": ("booleans", "b"),
    "f": ("numbers", "iuf"),
    "i": ("integers", "iu"),
    "u": ("integers", "iu"),
}


def _array(name: str, value: Any, spec: tf.TensorSpec) -> np.ndarray:
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    needed, kinds = _KINDS[dtype.kind]
    try:
        array = np.array(_decoded(value), dtype if kinds == "O" else None)
    except ValueError as error:
        raise HTTPException(400, f"{name}: {str(error).splitlines()[0]}") from error
    if array.dtype.kind in kinds and array.size and spec.shape.is_compatible_with(array.shape):
        typed = array.astype(dtype)
        is_text = all(isinstance(item, str | bytes) for item in array.ravel()) if kinds == "O" else True
        if is_text and (dtype.kind == "f" or np.array_equal(typed, array)):
            return typed
    stated = f"{spec.dtype.name} {spec.shape}, not {array.dtype} {array.shape}"
    raise HTTPException(400, f"{name}: needs {needed}: {stated}.")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    return value


def _to_json(arrays: Arrays) -> dict[str, Any]:
    def values(array: np.ndarray) -> list:
        return (np.char.decode(array.astype(bytes), "utf-8") if array.dtype == object else array).tolist()

    return {name: values(array) for name, array in arrays.items()}


def _described(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """Returns the metadata of tensors as TensorFlow Serving shows them."""
    return {
        name: {
            "dtype": types_pb2.DataType.Name(spec.dtype.as_datatype_enum),
            "tensor_shape": {"dim": [{"size": str(size or -1), "name": ""} for size in spec.shape]},
            "name": name,
        }
        for name, spec in specs.items()
    }
