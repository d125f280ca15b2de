# `commitlog` in a container: the wheel of `make package`, with Java for Spark. docs/how-to/docker.md says how it is built.
FROM python:3.11-slim-bookworm

# without a version: Debian has one at a time
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

COPY dist/*.whl /tmp/dist/
# the wheel has its version in its name
# hadolint ignore=DL3013
RUN wheel="$(echo /tmp/dist/*.whl)" \
    && pip install --no-cache-dir "${wheel}[cli,metrics,s3,ui]" \
    && rm -r /tmp/dist \
    && useradd --uid 10001 --create-home commitlog

# a number, so that Kubernetes sees that it is not root
USER 10001
WORKDIR /home/commitlog
ENTRYPOINT ["commitlog"]
CMD ["--help"]
