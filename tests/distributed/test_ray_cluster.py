"""What is refused before a Ray cluster does any work."""

import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from infoshot import DataError, InvalidArgumentError, MissingDependencyError, RayEngine
from infoshot.core.errors import LostProcessError
from infoshot.distributed.ray_cluster import Workers, choose_workers, open_cluster
from infoshot.distributed.ray_ranks import _Job
from infoshot.features.api import extract_shards
from infoshot.labelling import predict
from infoshot.shards import solve_shards
from tests.image_folders import make_folders
from tests.shards.made_shards import make_shards


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_folders(folder, 2, size=(40, 40), splits={"all": ("cat", "dog")})
    return folder / "all"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_unknown_engines_are_refused(photos, tmp_path):
    sentence = r"Unknown engine 'rai'\. Did you mean 'ray'\? Known: torchrun, ray\."
    with pytest.raises(InvalidArgumentError, match=sentence):
        extract_shards(photos, tmp_path / "out", engine="rai")
    with pytest.raises(InvalidArgumentError, match=sentence):
        solve_shards(photos, photos, tmp_path / "out", engine="rai")
    with pytest.raises(InvalidArgumentError, match=sentence):
        predict(tmp_path / "run", photos, engine="rai")


def test_a_missing_package_is_named(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    on_disk = make_shards(tmp_path)
    sentence = r"^engine='ray' needs Ray; install it with pip install 'infoshot\[ray\]'\.$"
    with pytest.raises(MissingDependencyError, match=sentence):
        extract_shards(photos, tmp_path / "out", engine="ray")
    with pytest.raises(MissingDependencyError, match=sentence):
        solve_shards(on_disk.support, on_disk.queries, tmp_path / "run", engine="ray")


def test_a_cluster_that_is_not_there_is_named_at_once(photos, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed")
    address, start = f"127.0.0.1:{free_port()}", time.monotonic()
    sentence = (
        f"^address {address}: the Ray cluster cannot be reached \\(Connection refused\\); start it "
        "with ray start, or leave out address to use this machine alone\\.$"
    )
    with pytest.raises(DataError, match=sentence):
        extract_shards(photos, tmp_path / "out", engine=RayEngine(address=address))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(DataError, match=sentence):
        extract_shards(photos, tmp_path / "out", engine="ray")
    assert time.monotonic() - start < 20  # Ray itself tries for minutes


def test_addresses_that_are_none_are_refused(photos, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    for address in ("cluster", "cluster:", ":6379", "cluster:99999", "ray://cluster"):
        with pytest.raises(InvalidArgumentError, match="address must be HOST:PORT of a Ray"):
            extract_shards(photos, tmp_path / "out", engine=RayEngine(address=address))


def test_a_start_that_ray_gives_up_is_one_sentence(monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed")

    def give_up(**_):
        raise SystemExit(15)  # what Ray does when it has tried for minutes

    monkeypatch.setattr(ray, "init", give_up)
    with (
        pytest.raises(DataError, match=r"^the Ray cluster cannot be reached \(15\)\.$"),
        open_cluster(RayEngine(address="auto")),
    ):
        pass


def test_processes_of_torchrun_do_not_start_others(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidArgumentError, match="engine must be 'torchrun' in the processes"):
        extract_shards(photos, tmp_path / "out", engine="ray")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1; got 0."),
        ({"cpus_per_worker": 0}, "cpus_per_worker must be a whole number of at least 1; got 0."),
        ({"gpus_per_worker": 2}, "gpus_per_worker must be between 0 and 1; got 2."),
    ],
)
def test_wrong_numbers_are_refused(settings, sentence):
    with pytest.raises(InvalidArgumentError) as error:
        RayEngine(**settings)
    assert str(error.value) == sentence


class FakeRay:
    """The nodes of a cluster, one of which has been lost."""

    def __init__(self, *nodes):
        self._nodes = [{"Alive": True, "Resources": node} for node in nodes]
        self._nodes.append({"Alive": False, "Resources": {"CPU": 64, "GPU": 8}})

    def nodes(self):
        return self._nodes


def test_as_many_workers_as_fit_on_the_nodes():
    cpus = FakeRay({"CPU": 3}, {"CPU": 4}, {"memory": 1e9})
    assert choose_workers(cpus, RayEngine(cpus_per_worker=2), None).number == 3
    gpus = FakeRay({"CPU": 8, "GPU": 2}, {"CPU": 3, "GPU": 4}, {"CPU": 64})
    found = choose_workers(gpus, RayEngine(), None)
    assert (found.number, found.gpus, found.device) == (5, 1.0, "cuda")
    assert found.options == {"num_cpus": 1, "num_gpus": 1.0}
    assert choose_workers(gpus, RayEngine(gpus_per_worker=0.25), "cuda").number == 11
    assert choose_workers(gpus, RayEngine(gpus_per_worker=0.7), "cuda").number == 5
    found = choose_workers(gpus, RayEngine(cpus_per_worker=8), "cpu")
    assert (found.number, found.gpus, found.device) == (9, 0.0, "cpu")
    assert choose_workers(gpus, RayEngine(gpus_per_worker=0), None).number == 75


def test_workers_that_do_not_fit_and_other_devices_are_refused():
    ray = FakeRay({"CPU": 1}, {"CPU": 1})
    for engine, device, sentence in (
        (RayEngine(workers=3), None,
         "workers must fit into the Ray cluster, which has room for 2 of 1 CPUs and 0 GPUs each; "
         "got 3."),
        (RayEngine(cpus_per_worker=2), None,
         "workers must fit into the Ray cluster, which has room for 0 of 2 CPUs and 0 GPUs each; "
         "got none."),
        (RayEngine(), "cuda:1", "device must be 'cpu' or 'cuda' with engine='ray'; got 'cuda:1'."),
        (RayEngine(gpus_per_worker=0), "cuda",
         "gpus_per_worker must be above 0 with device='cuda'; got 0."),
    ):  # fmt: skip
        with pytest.raises(InvalidArgumentError) as error:
            choose_workers(ray, engine, device)
        assert str(error.value) == sentence


def test_a_job_does_not_wait_for_the_place_of_a_lost_node():
    job = _Job.__new__(_Job)
    job._workers, job._group = Workers(3, 1, 0.0, "cpu"), SimpleNamespace(wait=lambda **_: False)
    with pytest.raises(LostProcessError, match=r"^a node of the Ray cluster has been lost\.$"):
        job.wait_for_places(lambda: Workers(2, 1, 0.0, "cpu"))


def test_commands_name_their_options(photos, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    command = [sys.executable, "-m", "infoshot", "extract-shards", photos, "--out", tmp_path / "o"]

    def complaint(*options):
        done = subprocess.run(
            [*map(str, command), *options], capture_output=True, text=True, env=dict(os.environ)
        )
        assert done.returncode == 2
        return done.stderr

    assert "workers must be left out without --engine ray." in complaint("--workers", "2")
    found = complaint("--engine", "ray", "--address", f"127.0.0.1:{free_port()}")
    assert "the Ray cluster cannot be reached (Connection refused)" in found
    assert "Traceback" not in found
