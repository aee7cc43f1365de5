"""A Ray cluster of two nodes with one core each, on this machine."""

import os
import signal
import socket
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    CLIENT_PORT = free.getsockname()[1]


@contextmanager
def two_nodes():
    """Start the cluster, and yield it."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        node = {"num_cpus": 1, "object_store_memory": 80_000_000}
        head = {**node, "include_dashboard": False, "ray_client_server_port": CLIENT_PORT}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # Ray leaves files open
            cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(**node)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def processes_of(name):
    """Processes that run a method of an actor, such as ``_Worker.run``, by their titles."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            title = (entry / "cmdline").read_bytes()
            if title.startswith(b"ray::" + name.encode()):
                found.append(int(entry.name))
    return sorted(found)


def end_process(pid):
    os.kill(pid, signal.SIGKILL)


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
