# Build:  docker build -t ritornello .
# Train:  docker run --rm -it -v "$PWD/results:/app/results" ritornello --env=PongNoFrameskip-v4
# GPU:    the same with --gpus=all. PyTorch's default Linux wheel brings CUDA along and also runs on
#         a CPU; for a smaller image without CUDA, hand pip the address of PyTorch's CPU wheels (see
#         PyTorch's installation page):
#         docker build --build-arg PIP_INSTALL_ARGS="--extra-index-url=<address>" -t ritornello .
#
# --shm-size is not needed: experience travels through anonymous shared memory, which counts against
# the memory of the container (--memory), not against the 64 MB that Docker gives to /dev/shm.
# results/ belongs to user 1000 inside: a mounted folder must be writable by that user.
FROM python:3.11-slim

ARG PIP_INSTALL_ARGS=""

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1

RUN useradd --create-home --uid 1000 agent
WORKDIR /app

# Before the sources, so that a change of code does not install everything again.
COPY requirements.txt .
RUN python -m pip install ${PIP_INSTALL_ARGS} --requirement requirements.txt

COPY --chown=agent:agent . .
RUN mkdir -p results && chown agent:agent /app results
USER agent
VOLUME ["/app/results"]

# Exec form: Ctrl-C and `docker stop` reach the program itself, which then saves and ends cleanly.
ENTRYPOINT ["python", "main.py"]
