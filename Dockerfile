# The service: labelgrove's wheel in a slim image, without a compiler and without root.
#   docker build -t labelgrove .
#   docker run --rm -p 8000:8000 -v "$PWD/model:/model:ro" labelgrove
#
# A tag can move to another image. To get the same image every time, look up its digest once and
# build with it:
#   docker buildx imagetools inspect python:3.12-slim
#   docker build --build-arg BASE=python:3.12-slim@sha256:DIGEST -t labelgrove .
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml README.md LICENSE CMakeLists.txt constraints.txt ./
COPY native native
COPY src src
RUN pip install --no-cache-dir -c constraints.txt scikit-build-core nanobind cmake ninja \
    && pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheels .

FROM ${BASE}
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
# Models of neural methods need torch besides: --build-arg EXTRAS=serve,torch
ARG EXTRAS=serve
RUN pip install --no-cache-dir -c /wheels/constraints.txt "$(ls /wheels/*.whl)[$EXTRAS]" \
    && useradd --system --no-create-home labelgrove
USER labelgrove
EXPOSE 8000
VOLUME /model
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["labelgrove"]
CMD ["serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
