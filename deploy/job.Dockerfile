# The image of rented jobs: the GPU lock and this checkout, so that a job starts in seconds and not after minutes
# of installing at the card's price. Build it from the repository's root, push it, and give its digest to
# GEO_JOB_IMAGE; a job refuses an image that holds another trainer than the checkout that launched it.
#   docker build -f deploy/job.Dockerfile -t REGISTRY/geo-job . && docker push REGISTRY/geo-job
FROM ghcr.io/astral-sh/uv:python3.12-bookworm
WORKDIR /srv/geo
COPY deploy/locks/gpu.txt deploy/locks/gpu.txt
RUN uv pip install --system --no-cache -r deploy/locks/gpu.txt
COPY pyproject.toml README.md LICENSE ./
COPY env_service env_service
COPY geo_assets geo_assets
COPY resources resources
COPY sensors sensors
# Editable: a code version is taken from the sources as they stand.
RUN uv pip install --system --no-cache --no-deps -e .
