r"""Serves an exported model over HTTP, with the REST routes of TensorFlow Serving.

    python -m rank4class.scripts.serve runs/mine
    curl -d '{"inputs": {"text": ["my parcel never came"]}}' localhost:8501/v1/models/mine:predict

It answers until Ctrl-C or SIGTERM. Requests in progress then have 5 seconds. There is no encryption and no
login: put a proxy before it that has them.
"""

import os
import socket

from absl import flags

from rank4class import compat
from rank4class.scripts import cli

GRACE = 5  # seconds; less than those after which Docker kills

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "Folder of a SavedModel or an ONNX model, or of versions, of which the highest is served; or of a run, "
    "which is exported to its folder export first, unless that exists.",
    required=True,
)
_NAME = flags.DEFINE_string("name", None, "Name of the model in the routes; None: that of its folder.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen at; 0.0.0.0: all of this machine.")
_PORT = flags.DEFINE_integer("port", 8501, "Port to listen at.", lower_bound=1, upper_bound=65535)


def main() -> None:
    compat.require_extra("serve")
    import uvicorn

    from rank4class.pipelines.export import serving
    from rank4class.pipelines.storage import run_directory

    folder = _MODEL.value
    name = _NAME.value
    if run_directory.is_run(folder):
        name = name or os.path.basename(os.path.abspath(folder))
        run, folder = folder, os.path.join(folder, "export")
        if not os.path.exists(folder):
            from rank4class.pipelines.run import Run

            Run(run).export(os.path.join(folder, "1"))
    with socket.socket(socket.AF_INET6 if ":" in _HOST.value else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Otherwise the kernel waits 40 ms for more to send with an answer.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((_HOST.value, _PORT.value))  # an error comes before the model is loaded
        app = serving.app(folder, name)
        print(f"http://{_HOST.value}:{_PORT.value}{app.state.path}", flush=True)
        uvicorn.run(
            app,
            fd=listener.fileno(),
            log_level="warning",
            limit_concurrency=1000,
            timeout_graceful_shutdown=GRACE,
        )


if __name__ == "__main__":
    cli.run(main, arguments=["model"])
