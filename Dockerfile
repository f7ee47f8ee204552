# CPUs:        docker build --tag vaswani .
# NVIDIA GPUs: docker build --tag vaswani --build-arg EXTRA=cuda .      and docker run --gpus=all
# A command:   docker run --rm --volume "$PWD:/work" vaswani train --config=configs/quickstart.py --workdir=runs/quickstart
FROM python:3.12-slim
ARG EXTRA=""
WORKDIR /source
COPY requirements.lock .
RUN pip install --no-cache-dir --requirement requirements.lock
COPY . .
RUN pip install --no-cache-dir ".${EXTRA:+[$EXTRA]}"
WORKDIR /work
ENTRYPOINT ["vaswani"]
