# The commands in an image:      docker build -t rank4class . && docker run rank4class train --help
# With CUDA, for NVIDIA GPUs:    docker build -t rank4class --build-arg DEVICE=gpu .
#                                docker run --gpus all -v "$PWD:/work" rank4class train --config=...
ARG PYTHON=3.13

# Tools of `make`; the development container is this stage.
FROM python:${PYTHON}-slim AS tools
RUN apt-get update \
 && apt-get install -y --no-install-recommends git make shellcheck \
 && rm -rf /var/lib/apt/lists/*

FROM tools
ARG DEVICE=cpu
WORKDIR /opt/rank4class
COPY requirements.txt .
RUN pip install --no-cache-dir --no-deps -r requirements.txt
RUN case "$DEVICE" in \
      cpu) ;; \
      gpu) pip install --no-cache-dir "$(sed -n 's/^tensorflow==/tensorflow[and-cuda]==/p' requirements.txt)" ;; \
      *) echo "DEVICE=$DEVICE: unknown. Set it to cpu or gpu." && exit 1 ;; \
    esac
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
WORKDIR /work
ENTRYPOINT ["rank4class"]
