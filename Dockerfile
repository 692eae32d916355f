# drjax on processors, as a user without rights. docker build -t drjax . && docker run --rm -v "$PWD:/work" drjax audit
FROM python:3.11-slim

ARG EXTRAS=""
COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY drjax /src/drjax
RUN pip install --no-cache-dir -c /src/constraints.txt "/src${EXTRAS:+[$EXTRAS]}" && rm -rf /src

RUN useradd --create-home --uid 1000 drjax
USER drjax
WORKDIR /work
ENTRYPOINT ["drjax"]
CMD ["--help"]
