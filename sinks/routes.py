"""Windows of paths as Arrow tables: flows with the paths they took, and the load of links."""

import numpy as np
import pyarrow as pa

from schemas import columns as c
from schemas.paths import Paths
from sinks import route_tables
from sinks.arrow import assemble, constant, floats, integers, names, narrow, texts


def flows(record: Paths) -> pa.Table | None:
    """The table `flows`."""
    n, data = len(record), record.data
    if not n:
        return None
    return assemble(
        route_tables.FLOWS,
        [
            pa.array(data["flow_id"]),
            texts(data["flow_src"], record.strings),
            texts(data["flow_dst"], record.strings),
            narrow(data["flow_src_port"], c.NULL_U16, pa.int32()),
            narrow(data["flow_dst_port"], c.NULL_U16, pa.int32()),
            narrow(data["flow_protocol"], c.NULL_U8, pa.int32()),
            texts(data["flow_job"], record.strings),
            narrow(data["flow_rank_src"], c.NULL_I32, pa.int32()),
            narrow(data["flow_rank_dst"], c.NULL_I32, pa.int32()),
            integers(data["flow_bytes"]),
            _steps(record),
            names(data["flow_path_source"], c.PathSource),
            floats(data["flow_agreement"]),
            integers(data["flow_valid_from_ns"]),
            integers(data["flow_valid_to_ns"]),
            constant(record.scope, n),
            pa.array(np.full(n, record.window_start_ns)),
            pa.array(np.full(n, record.window_end_ns)),
            narrow(data["flow_reports"], c.NULL_U32, pa.int64()),
            integers(data["flow_latency_ns"]),
        ],
    )


def _steps(record: Paths) -> pa.Array:
    """The path of each flow as a list of (link, share)."""
    data = record.data
    first = data["flow_path_first"].astype(np.int64)
    count = data["flow_path_count"].astype(np.int64)
    ends = np.cumsum(count)
    total = int(ends[-1])
    at = np.repeat(first - (ends - count), count) + np.arange(total)
    link = data.get("path_link", np.empty(0, "<u2"))[at]
    share = data.get("path_share", np.empty(0, np.float64))[at]
    step = pa.StructArray.from_arrays(
        [texts(link, record.strings).cast(pa.string()), floats(share)], names=["link", "share"]
    )
    return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], ends)), pa.int32()), step)


def links(record: Paths) -> pa.Table | None:
    """The table `links`."""
    data = record.data
    n = len(data.get("link_name", ()))
    if not n:
        return None
    return assemble(
        route_tables.LINKS,
        [
            texts(data["link_layer"], record.strings),
            texts(data["link_name"], record.strings),
            pa.array(np.full(n, record.window_start_ns)),
            narrow(data["link_flows"], c.NULL_U32, pa.int64()),
            integers(data["link_bytes"]),
            floats(data["link_capacity_bps"]),
            floats(data["link_utilisation"]),
            floats(data["link_coverage"]),
            constant(record.scope, n),
            pa.array(np.full(n, record.window_end_ns)),
            integers(data["link_attributed"]),
            integers(data["link_interval_ns"]),
        ],
    )
