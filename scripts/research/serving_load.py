r"""Measures servers under load: texts a second, and how long a text takes, for several clients.

    python -m rank4class.scripts.research.serving_load --texts=banking77/test.csv \
        --server="rank4class serve models/int8 --name=mine --port=PORT" \
        --server="peer/bin/python scripts/research/benchmarks/serving_peer.py MINILM banking77/train.csv PORT"

All servers run at the same time and are measured in turn, on this machine and its address 127.0.0.1. Each
client sends a text, waits for the answer, and sends the next one. The first server is the baseline.
"""

import asyncio
import contextlib
import csv
import itertools
import json
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator

import numpy as np
from absl import flags

from rank4class.scripts import cli

_SERVERS = flags.DEFINE_multi_string(
    "server", None, "Command that serves a model of the name mine at PORT.", required=True
)
_TEXTS = flags.DEFINE_string("texts", None, "CSV with a column text.", required=True)
_CLIENTS = flags.DEFINE_multi_integer("clients", [1, 8, 64], "Numbers of clients.")
_SECONDS = flags.DEFINE_float("seconds", 5.0, "Seconds of each measurement.", lower_bound=0.1)
_REPEATS = flags.DEFINE_integer("repeats", 3, "Measurements of each server; the table has their medians.")
_START_SECONDS = 180.0


def main() -> None:
    from rank4class.pipelines.reporting import tables

    with open(_TEXTS.value, encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    rows = [["clients", "server", "texts/s", "ratio", "p50 ms", "p99 ms"]]
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(_started(command)) for command in _SERVERS.value]
        for port in ports:
            _wait(port, texts[0])
        for clients in _CLIENTS.value:
            measured: list[list] = [[] for _ in ports]
            for _ in range(_REPEATS.value):
                for port, seconds in zip(ports, measured, strict=True):
                    seconds.append(asyncio.run(_measure(port, texts, clients)))
            rates = [np.median([len(each) for each in runs]) / _SECONDS.value for runs in measured]
            for i, (rate, runs) in enumerate(zip(rates, measured, strict=True)):
                spread = [1e3 * np.median([np.percentile(each, p) for each in runs]) for p in (50, 99)]
                figures = [rate / rates[0], *spread]
                rows.append([str(clients), str(i + 1), f"{rate:,.0f}", *(f"{x:.1f}" for x in figures)])
    print(tables.text_table(rows))


@contextlib.contextmanager
def _started(command: str) -> Iterator[int]:
    """Starts a server; yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(shlex.split(command.replace("PORT", str(port))))
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


def _wait(port: int, text: str) -> None:
    """Waits until a server answers; raises TimeoutError if it does not."""
    end = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError):
            asyncio.run(_ask(port, iter([text]), time.monotonic() + 1.0))
            return
        if time.monotonic() > end:
            raise TimeoutError(f"port {port}: no answer in {_START_SECONDS:.0f} seconds.")
        time.sleep(0.5)


async def _measure(port: int, texts: list[str], clients: int) -> list[float]:
    """Returns the seconds of the answers that a server gives to so many clients."""
    end = time.monotonic() + _SECONDS.value
    parts = (itertools.cycle(texts[i:] + texts[:i]) for i in range(clients))
    return list(itertools.chain(*await asyncio.gather(*(_ask(port, part, end) for part in parts))))


async def _ask(port: int, texts: Iterator[str], end: float) -> list[float]:
    """Sends texts one after another, until a time or the last; returns the seconds of each answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds = []
    for text in texts:
        start = time.monotonic()
        if start >= end:
            break
        body = json.dumps({"inputs": {"text": [text]}}).encode()
        head = "POST /v1/models/mine:predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(answer.partition("content-length:")[2].split()[0]))
        if " 200 " not in answer.partition("\r\n")[0]:
            raise ValueError(f"port {port}: {answer.splitlines()[0]}. Look at the server's output.")
        seconds.append(time.monotonic() - start)
    writer.close()
    return seconds


if __name__ == "__main__":
    cli.run(main)
