"""A Ray cluster of two nodes with one core each, on this machine."""

import os
import signal
import time
from contextlib import contextmanager

import pytest


@contextmanager
def two_nodes():
    """Start the cluster; yields its address."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        node = {"num_cpus": 1, "object_store_memory": 80_000_000}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            cluster.add_node(**node)
            yield cluster.address
        finally:
            ray.shutdown()
            cluster.shutdown()


def workers(name):
    """Processes that run a method of an actor of this class, by their titles."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                title = file.read()
        except OSError:
            continue
        if entry.isdigit() and title.startswith(b"ray::" + name.encode()):
            found.append(int(entry))
    return sorted(found)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
