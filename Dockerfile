# An image with the command `xtts`. For NVIDIA GPUs: docker build --build-arg EXTRAS=phonemes,serve,gpu .
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
RUN pip install --no-cache-dir build==1.6.1
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY configs configs
COPY xtts_pipeline xtts_pipeline
RUN python -m build --wheel

FROM python:${PYTHON}-slim
ARG EXTRAS=phonemes,serve
COPY constraints.txt /opt/
COPY --from=wheel /source/dist/ /opt/
RUN pip install --no-cache-dir --constraint /opt/constraints.txt "$(echo /opt/*.whl)[${EXTRAS}]"
# Any user may run it, with `docker run --user`: numba and matplotlib need a home to write to.
ENV HOME=/tmp
# A number, since a cluster cannot tell whether a name is root.
USER 65534:65534
WORKDIR /work
ENTRYPOINT ["xtts"]
CMD ["--help"]
