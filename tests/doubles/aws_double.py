"""S3 and Secrets Manager on loopback: moto's threaded server, with the variables that point clients at it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import boto3
from moto.server import ThreadedMotoServer

REGION = "eu-central-1"
ACCESS_KEY, SECRET_KEY = "AKIAPLANTED0KEY0ID00", "planted/secret+key+that+nothing+may+repeat"


@dataclass(frozen=True)
class Aws:
    """A running double.

    Attributes:
        variables: what a client's process has in its environment, credentials included.
    """

    variables: dict[str, str]

    def client(self, service: str) -> Any:
        """A boto3 client of it."""
        return boto3.client(
            service,
            endpoint_url=self.variables["AWS_ENDPOINT_URL"],
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )

    def make_bucket(self) -> str:
        """A new, empty bucket; its name."""
        name = f"geo-{uuid4().hex}"
        self.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    def objects(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        """Every object below a prefix, by its name there."""
        s3 = self.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {
            key.removeprefix(prefix): s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys
        }


@contextmanager
def aws() -> Iterator[Aws]:
    """The double, for as long as the block runs."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line per request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield Aws(
            {
                "AWS_ENDPOINT_URL": f"http://{host}:{port}",
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        )
    finally:
        server.stop()
