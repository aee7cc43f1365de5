"""Parquet files of embeddings, written by the packages that people write them with."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def rows_of_lists(z, dtype=None):
    """Rows as lists of any length."""
    return pa.array([[float(x) for x in row] for row in z], pa.list_(dtype or pa.float32()))


def rows_of_fixed_lists(z):
    """Rows as lists of fixed size, in the type of the array."""
    return pa.FixedSizeListArray.from_arrays(pa.array(z.ravel()), z.shape[1])


def _pyarrow_lists(path, z, others):
    table = pa.table({**others, "embedding": rows_of_lists(z)})
    pq.write_table(table, path, row_group_size=7)


def _pyarrow_fixed(path, z, others):
    columns = {**others, "embedding": rows_of_fixed_lists(z)}
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=7)


def _pyarrow_half(path, z, others):
    columns = {**others, "embedding": rows_of_fixed_lists(z.astype(np.float16))}
    pq.write_table(pa.table(columns), path)


def _pyarrow_double(path, z, others):
    embeddings = rows_of_lists(z, pa.float64()).cast(pa.large_list(pa.float64()))
    pq.write_table(pa.table({**others, "embedding": embeddings}), path, version="1.0")


def _polars_array(path, z, others):
    import polars as pl

    rows = pl.Series(z, dtype=pl.Array(pl.Float32, z.shape[1]))
    pl.DataFrame({**others, "embedding": rows}).write_parquet(path, row_group_size=7)


def _polars_list(path, z, others):
    import polars as pl

    rows = pl.Series(z.tolist(), dtype=pl.List(pl.Float64))
    pl.DataFrame({**others, "embedding": rows}).write_parquet(path)


def _datasets(path, z, others):
    import datasets

    kinds = {name: datasets.Value(_kind(values)) for name, values in others.items()}
    features = {**kinds, "embedding": datasets.List(datasets.Value("float32"), length=z.shape[1])}
    rows = {**others, "embedding": z.tolist()}
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    datasets.disable_progress_bars()
    made.to_parquet(path)


def _kind(values):
    return "string" if isinstance(next(v for v in values if v is not None), str) else "int64"


WRITERS = {
    "pyarrow, lists": _pyarrow_lists,
    "pyarrow, fixed": _pyarrow_fixed,
    "pyarrow, float16": _pyarrow_half,
    "pyarrow, float64": _pyarrow_double,
    "polars, Array": _polars_array,
    "polars, List": _polars_list,
    "datasets": _datasets,
}
