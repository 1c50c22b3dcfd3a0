# The dashboard: docker build -t memplan . && docker run --rm -p 127.0.0.1:8501:8501 memplan
# Paths in RUN are below WORKDIR: tests/release/test_container.py runs these steps in a folder.
FROM python:3.11-slim

WORKDIR /opt/memplan
ARG EXTRAS="dashboard onnx figures history"
COPY requirements.lock ./
COPY scripts/lock.py scripts/
RUN python scripts/lock.py $EXTRAS >pins.txt
RUN python -m pip install --no-cache-dir --no-deps --require-hashes -r pins.txt

COPY . .
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation .

RUN useradd --create-home --uid 10001 memplan
USER 10001
ENV HOME=/home/memplan
WORKDIR /home/memplan
# A volume that is mounted here has this owner.
RUN mkdir .cache
EXPOSE 8501
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=3)"]
ENTRYPOINT ["memplan", "dashboard", "--all-interfaces", "--no-browser"]
CMD ["--port", "8501"]
