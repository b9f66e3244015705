"""The content of a table as a version that knows nothing of files, compression or library versions."""

import hashlib

import numpy as np
import pyarrow as pa

from geo_assets.lineage.versions import LENGTH


def rows_version(rows: pa.Table) -> str:
    """Version of a table of text, whole and floating columns, in the order of its rows.

    Raises:
        TypeError: a column is of another type.
    """
    digest = hashlib.sha256()
    for name in rows.column_names:
        column = rows[name]
        absent = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
        digest.update(f"{name}:{column.type}:{len(column)}\n".encode())
        digest.update(np.packbits(absent).tobytes())
        if pa.types.is_string(column.type):
            texts = [text.encode() for text in column.fill_null("").to_pylist()]
            digest.update(np.array([len(text) for text in texts], "<i8").tobytes())
            digest.update(b"".join(texts))
        elif pa.types.is_floating(column.type):
            digest.update(column.fill_null(0.0).to_numpy().astype("<f8").tobytes())
        elif pa.types.is_integer(column.type):
            digest.update(column.fill_null(0).to_numpy().astype("<i8").tobytes())
        else:
            raise TypeError(f"column {name} is {column.type}, which has no stated byte form")
    return digest.hexdigest()[:LENGTH]
