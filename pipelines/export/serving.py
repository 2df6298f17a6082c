"""An exported model over HTTP, with the routes and the JSON of TensorFlow Serving.

Requests that come while the model runs are answered together by its next call.
"""

import asyncio
import base64
import collections
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import prometheus_client
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rank4class import strict_json
from rank4class.pipelines.export import onnx_model, signatures
from rank4class.pipelines.export.onnx_model import Spec
from rank4class.pipelines.export.signatures import Arrays, Signature
from rank4class.pipelines.storage import files

MAX_BODY = 32 << 20  # bytes
MAX_BATCH = 64  # inputs of a call of the model, unless one request has more
MAX_WAITING = 1024  # inputs that wait for the model, unless one request has more
BODY_SECONDS = 10.0  # in which the body of a request has to arrive
BATCH_SECONDS = 0.002  # in which requests of other clients join a batch


class _Metrics:
    """The figures of `/metrics`, for Prometheus."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        of_registry: Any = {"registry": self.registry}
        self.requests = prometheus_client.Counter(
            "rank4class_requests", "Requests by route and status.", ["route", "status"], **of_registry
        )
        self.seconds = prometheus_client.Histogram(
            "rank4class_request_seconds", "Seconds from a request to its answer.", ["route"], **of_registry
        )
        self.batches = prometheus_client.Histogram(
            "rank4class_batch_size",
            "Inputs of a call of the model.",
            buckets=[2**i for i in range(11)],
            **of_registry,
        )
        self.waiting = prometheus_client.Gauge(
            "rank4class_waiting", "Inputs that wait for the model.", **of_registry
        )


class _Call(NamedTuple):
    """A call of a signature that waits for the model."""

    signature: Signature
    inputs: Arrays
    answer: asyncio.Future

    @property
    def size(self) -> int:
        return max((len(values) for values in self.inputs.values()), default=1)

    @property
    def group(self) -> Any:
        """Calls of equal groups can be one call."""
        shapes = [(name, values.shape[1:]) for name, values in sorted(self.inputs.items())]
        return id(self.signature), shapes


class _Queue:
    """The calls that wait for the model, which answers as many as possible together, one batch at a time."""

    def __init__(self, metrics: _Metrics):
        self._metrics = metrics
        self._waiting: collections.deque[_Call] = collections.deque()
        self._size = 0  # inputs that wait
        self._thread = ThreadPoolExecutor(1)
        self._task: asyncio.Task | None = None

    async def call(self, signature: Signature, inputs: Arrays) -> Arrays:
        """Returns the outputs of a signature; HTTPException if they are wrong, or too many wait."""
        call = _Call(signature, inputs, asyncio.get_running_loop().create_future())
        if self._size and self._size + call.size > MAX_WAITING:
            raise HTTPException(503, f"more than {MAX_WAITING:,} inputs wait. Send the request again later.")
        self._waiting.append(call)
        self._count(call.size)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await call.answer

    def _count(self, change: int) -> None:
        self._size += change
        self._metrics.waiting.set(self._size)

    async def _run(self) -> None:
        batch: list[_Call] = []
        while self._waiting:
            if len(batch) > 1:  # their clients may send the next requests at once
                await asyncio.sleep(BATCH_SECONDS)
            batch = self._next()
            await self._answer(batch)

    def _next(self) -> list[_Call]:
        """Returns the first of the calls, with others that can be one call with it."""
        batch: list[_Call] = []
        others = []
        size = 0
        while self._waiting and size < MAX_BATCH:
            call = self._waiting.popleft()
            if not batch or (call.group == batch[0].group and size + call.size <= MAX_BATCH):
                batch.append(call)
                size += call.size
            else:
                others.append(call)
        self._waiting.extendleft(reversed(others))
        self._count(-size)
        return batch

    async def _answer(self, batch: list[_Call]) -> None:
        signature = batch[0].signature
        sizes = [call.size for call in batch]
        self._metrics.batches.observe(sum(sizes))
        try:
            names = signature.inputs
            inputs = {name: np.concatenate([call.inputs[name] for call in batch]) for name in names}
            loop = asyncio.get_running_loop()
            outputs = await loop.run_in_executor(self._thread, signature.call, inputs)
            if len(batch) > 1 and {np.shape(x)[:1] for x in outputs.values()} != {(sum(sizes),)}:
                raise ValueError("outputs that are not of an input")
        except Exception as error:
            if len(batch) > 1:  # a wrong request is beside others
                for call in batch:
                    await self._answer([call])
            elif not batch[0].answer.done():
                is_wrong = isinstance(error, ValueError)
                batch[0].answer.set_exception(HTTPException(400, str(error)) if is_wrong else error)
            return
        if len(batch) == 1:
            if not batch[0].answer.done():  # its client has gone
                batch[0].answer.set_result(outputs)
            return
        ends = np.cumsum(sizes)
        for call, end in zip(batch, ends, strict=True):
            if not call.answer.done():
                of_call = {name: x[end - call.size : end] for name, x in outputs.items()}
                call.answer.set_result(of_call)


def app(folder: str | os.PathLike, name: str | None = None) -> Starlette:
    """Returns the ASGI application that serves a model; `state.path` is the route of the model.

    `/metrics` has the requests, their seconds, the sizes of batches and the inputs that wait, in Prometheus's
    format.

    Args:
      folder: of a SavedModel or an ONNX model, or of versions of one, of which the highest number is served.
      name: of the model in the routes; None is the name of the folder that has the versions.

    Raises:
      FileNotFoundError: there is no model in the folder.
    """
    folder = os.fspath(folder).rstrip("/")
    if not _is_model(folder):
        versions = [version for version in files.names_in(folder) if version.isdigit()]
        if not versions:
            raise FileNotFoundError(f"model={folder}: no exported model. Write one with: rank4class export")
        folder = os.path.join(folder, max(versions, key=int))
    parent, version = os.path.split(os.path.abspath(folder))
    name = name or os.path.basename(parent if version.isdigit() else folder)
    version = version if version.isdigit() else "1"
    is_onnx = onnx_model.is_model(folder)
    served = signatures.of_onnx_model(folder) if is_onnx else signatures.of_saved_model(folder)
    metrics = _Metrics()
    queue = _Queue(metrics)
    state = {"version": version, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    described = {
        key: {"inputs": _described(one.inputs), "outputs": _described(one.outputs)}
        for key, one in served.items()
    }

    async def status(_: Request) -> Any:
        return {"model_version_status": [state]}

    async def metadata(_: Request) -> Any:
        spec = {"name": name, "signature_name": "", "version": version}
        return {"model_spec": spec, "metadata": {"signature_def": {"signature_def": described}}}

    async def predict(request: Request) -> Any:
        body = await _body(request)
        signature = _signature(served, body, "serving_default")
        by_row = "instances" in body
        if by_row == ("inputs" in body):
            raise HTTPException(400, 'the body needs either "instances" or "inputs".')
        arrays = _arrays(signature, body, "instances" if by_row else "inputs")
        outputs = _to_json(await queue.call(signature, arrays))
        if len(outputs) == 1:
            [values] = outputs.values()
        elif by_row:
            values = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
        else:
            values = outputs
        return {"predictions" if by_row else "outputs": values}

    async def classify(request: Request) -> Any:
        body = await _body(request)
        signature = _signature(served, body, "classify")
        if "classes" not in signature.outputs:
            raise HTTPException(400, "the signature returns no classes.")
        outputs = _to_json(await queue.call(signature, _arrays(signature, body, "examples")))
        pairs = zip(outputs["classes"], outputs.get("probabilities", outputs["scores"]), strict=True)
        return {"result": [list(map(list, zip(*pair, strict=True))) for pair in pairs]}

    async def show_metrics(_: Request) -> Response:
        content = prometheus_client.generate_latest(metrics.registry)
        return Response(content, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    prefixes = [f"/v1/models/{name}", f"/v1/models/{name}/versions/{version}"]
    routes = {"": status, "/metadata": metadata, ":predict": predict, ":classify": classify}
    served_app = Starlette(
        routes=[
            *(
                Route(
                    prefix + path,
                    _route(path.lstrip(":/") or "status", handle, metrics),
                    methods=["POST" if path.startswith(":") else "GET"],
                )
                for prefix in prefixes
                for path, handle in routes.items()
            ),
            Route("/metrics", show_metrics),
        ],
        exception_handlers={404: _no_route, 405: _no_route},
    )
    served_app.state.path = prefixes[0]
    return served_app


def _is_model(folder: str) -> bool:
    return onnx_model.is_model(folder) or files.exists(os.path.join(folder, "saved_model.pb"))


def _route(name: str, handle: Callable[[Request], Any], metrics: _Metrics) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        status = 500
        with metrics.seconds.labels(name).time():
            try:
                content = await handle(request)
                status = 200
            except HTTPException as error:
                content, status = {"error": error.detail}, error.status_code
            except asyncio.CancelledError:
                content, status = {"error": "the server ends. Send the request again."}, 503
            finally:
                metrics.requests.labels(name, status).inc()
        return _json(content, status)

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


def _signature(served: Mapping[str, Signature], body: Mapping[str, Any], default: str) -> Signature:
    name = body.get("signature_name", default)
    if not isinstance(name, str) or name not in served:
        raise HTTPException(400, f"signature_name={name!r}: unknown. There are: {', '.join(served)}.")
    return served[name]


def _arrays(signature: Signature, body: Mapping[str, Any], field: str) -> Arrays:
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


def _array(name: str, value: Any, spec: Spec) -> np.ndarray:
    dtype = spec.dtype
    needed, kinds = _KINDS[dtype.kind]
    try:
        array = np.array(_decoded(value), dtype if kinds == "O" else None)
    except ValueError as error:
        raise HTTPException(400, f"{name}: {str(error).splitlines()[0]}") from error
    if array.dtype.kind in kinds and array.size and spec.fits(array.shape):
        typed = array.astype(dtype)
        is_text = all(isinstance(item, str | bytes) for item in array.ravel()) if kinds == "O" else True
        if is_text and (dtype.kind == "f" or np.array_equal(typed, array)):
            return typed
    stated = f"{dtype} {spec.shape}, not {array.dtype} {array.shape}"
    raise HTTPException(400, f"{name}: needs {needed}: {stated}.")


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    return value


def _to_json(arrays: Arrays) -> dict[str, Any]:
    return {name: array.tolist() for name, array in arrays.items()}


# NumPy's name of a dtype -> TensorFlow's, if it is another.
_DATA_TYPES = {"object": "STRING", "float64": "DOUBLE", "float32": "FLOAT", "float16": "HALF"}


def _described(specs: Mapping[str, Spec]) -> dict[str, Any]:
    """Returns the metadata of tensors as TensorFlow Serving shows them."""
    return {
        name: {
            "dtype": f"DT_{_DATA_TYPES.get(spec.dtype.name, spec.dtype.name.upper())}",
            "tensor_shape": {"dim": [{"size": str(size or -1), "name": ""} for size in spec.shape]},
            "name": name,
        }
        for name, spec in specs.items()
    }
