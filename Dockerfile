# Training and everything after it, on CPUs. From this folder:
#   docker build -t xfed .
#   docker run --rm -v ./runs:/xfed/runs xfed run --rounds 5 --out runs/mine
# Arguments after the image's name go to xfed; raw data is looked for in /data.
FROM python:3.12.12-slim-bookworm
ARG PIP_EXTRA_INDEX_URL
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY runtime ./runtime
COPY src ./src
RUN pip install --no-cache-dir --constraint constraints.txt ./runtime '.[export,serve]' && rm -rf /source \
    && useradd --uid 1000 --create-home xfed && mkdir /xfed /data && chown xfed /xfed
WORKDIR /xfed
USER xfed
ENV XFED_DATA=/data PYTHONUNBUFFERED=1
ENTRYPOINT ["xfed"]
CMD ["--help"]
