"""A real Ray cluster of two nodes: the files of torchrun, also if workers or nodes are lost."""

import subprocess
import sys
import threading

import pytest

from infoshot import DataError, InvalidArgumentError, RayEngine, label, predict
from infoshot.core.errors import ImbalanceWarning, LostProcessError
from infoshot.distributed.ray_cluster import Workers, open_cluster
from infoshot.distributed.ray_pool import map_on_workers
from infoshot.features.api import extract_shards
from infoshot.shards import solve_shards
from tests.encoders import save_conv4
from tests.image_folders import make_folders
from tests.ray_cluster import CLIENT_PORT, end_process, processes_of, two_nodes, wait_until
from tests.shards.made_shards import make_shards
from tests.shards.test_shard_ranks import start_ranks, wait_for
from tests.shards.test_whitened_shards import add_base, base_statistics

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster():
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def engine(cluster):
    return RayEngine(address=cluster.address)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_folders(folder, 120, size=(40, 40), splits={"all": ("cat", "dog", "eel")})
    (folder / "all" / "cat" / "broken.png").write_bytes(b"")
    return folder / "all"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_conv4(tmp_path_factory.mktemp("weights") / "checkpoint")


@pytest.fixture(scope="module")
def alone(photos, checkpoint, tmp_path_factory):
    """The shards that a single process writes, and its counts."""
    out = tmp_path_factory.mktemp("alone")
    return out, extract_shards(photos, out, backbone=checkpoint, shard_size=5)


def check_equal_files(out, expected):
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in out.iterdir() if path.name[0] != ".") == names
    for name in names:
        assert (out / name).read_bytes() == (expected / name).read_bytes(), name


class Later(threading.Thread):
    """Calls a function in a thread, and raises what it raised in ``wait``."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self._function, self._error = function, None
        self.start()

    def run(self):
        try:
            self._function()
        except BaseException as error:
            self._error = error

    def wait(self):
        self.join(60)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error


def test_extraction_writes_the_files_of_one_process(
    photos, checkpoint, alone, engine, tmp_path, monkeypatch
):
    monkeypatch.chdir(photos.parent)
    expected, out, seen = tmp_path / "expected", tmp_path / "out", []
    options = {"backbone": checkpoint, "shard_size": 50, "format": "parquet", "dtype": "float32"}
    extract_shards("all", expected, **options)
    counts = extract_shards(
        "all", out, **options, engine=engine, progress=lambda *event: seen.append(event)
    )
    assert (counts.n_images, counts.n_unreadable, counts.n_shards, counts.n_new) == (361, 1, 8, 8)
    check_equal_files(out, expected)  # with relative paths
    assert (seen[0], seen[-1]) == (("extracting", 0, 361), ("extracting", 361, 361))


def test_finished_shards_are_kept(photos, checkpoint, alone, cluster, tmp_path):
    out = tmp_path / "out"
    extract_shards(photos, out, backbone=checkpoint, shard_size=5)
    for number in (0, 7, 30):
        (out / f"shard-{number:06}.safetensors").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    done = subprocess.run(
        [sys.executable, "-m", "infoshot", "extract-shards", photos, "--out", out, "--backbone",
         checkpoint, "--shard-size", "5", "--engine", "ray", "--address", cluster.address],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "361 images in 73 shards, 3 of them new; 1 images cannot be read" in done.stdout
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    check_equal_files(out, alone[0])


def test_encoding_survives_a_killed_worker(photos, checkpoint, alone, engine, tmp_path):
    out = tmp_path / "out"
    started = lambda: [*out.glob("*.safetensors")] and processes_of("_Worker.run")  # noqa: E731
    job = Later(
        lambda: extract_shards(photos, out, backbone=checkpoint, shard_size=5, engine=engine)
    )
    wait_until(started)
    end_process(processes_of("_Worker.run")[0])
    assert len([*out.glob("*.safetensors")]) < 73
    job.wait()
    check_equal_files(out, alone[0])


def test_encoding_survives_a_lost_node(photos, checkpoint, alone, cluster, engine, tmp_path):
    """Its worker is never started again: the others take over its shard."""
    node = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    out = tmp_path / "out"
    job = Later(
        lambda: extract_shards(photos, out, backbone=checkpoint, shard_size=5, engine=engine)
    )
    wait_until(lambda: len(processes_of("_Worker.run")) == 3)
    cluster.remove_node(node, allow_graceful=False)
    assert len([*out.glob("*.safetensors")]) < 73
    job.wait()
    check_equal_files(out, alone[0])


def test_errors_of_workers_are_raised_here(photos, checkpoint, engine, tmp_path):
    out = tmp_path / "out"
    extract_shards(photos, out, backbone=checkpoint, shard_size=100)
    with pytest.raises(DataError, match="a shard of other images, of another size or encoder"):
        extract_shards(photos, out, backbone=checkpoint, shard_size=99, engine=engine)
    with pytest.raises(InvalidArgumentError, match="which has room for"):
        extract_shards(photos, out, backbone=checkpoint, engine=RayEngine(
            address=engine.address, workers=9))  # fmt: skip


def test_a_machine_outside_of_the_cluster(cluster, tmp_path):
    """Through Ray's client: the command itself is no part of the cluster."""
    pytest.importorskip("grpc", reason="grpcio is not installed")
    on_disk = make_shards(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "infoshot", "solve-shards", "--support", on_disk.support,
         "--queries", on_disk.queries, "--out", "run", "--engine", "ray", "--workers", "1",
         "--address", f"ray://127.0.0.1:{CLIENT_PORT}", "--set", "n_steps=3"],
        capture_output=True, text=True, timeout=90, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2,400 rows of 5 shards labelled after 3 iterations" in done.stdout


def test_nodes_with_other_files_are_named(engine, tmp_path, monkeypatch):
    from infoshot.distributed import ray_pool
    from infoshot.features.ray_shards import _open_same

    with open_cluster(engine) as ray:
        monkeypatch.setattr(ray_pool, "current_folder", lambda: str(tmp_path / "missing"))
        with pytest.raises(DataError, match=r"missing: the node .* cannot open this folder \(No"):
            next(map_on_workers(ray, lambda: print, [1], Workers(1, 1, 0.0, "cpu")))
    from infoshot.features.extract import Extraction

    weights = save_conv4(tmp_path / "weights")
    with pytest.raises(DataError, match="or the version of infoshot differs between the nodes"):
        _open_same(weights, {"infoshot": "0"}, Extraction())


def test_work_that_ends_every_worker_is_given_up(engine):
    def end(item):
        import os

        os._exit(1) if item == 1 else None
        return item

    with open_cluster(engine) as ray:
        done = map_on_workers(ray, lambda: end, [0, 1, 2], Workers(2, 1, 0.0, "cpu"))
        with pytest.raises(LostProcessError, match="4 workers of the Ray cluster have ended at"):
            list(done)


def test_predict_gives_the_labels_of_one_process(photos, checkpoint, engine, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.features.ray_shards._AT_ONCE", 100)
    examples = tmp_path / "examples"
    make_folders(tmp_path, 3, size=(40, 40), splits={"examples": ("cat", "dog", "eel")})
    label(examples, photos, tmp_path / "run", backbone=checkpoint, cache=tmp_path / "first")
    with pytest.warns(UserWarning, match="1 of 361 images cannot be read"):
        expected = predict(tmp_path / "run", photos, cache=tmp_path / "second")
    with pytest.warns(UserWarning, match="1 of 361 images cannot be read"):
        found = predict(tmp_path / "run", photos, cache=tmp_path / "third", engine=engine)
    assert found == expected


SIZES = (40_000, 1, 0, 60_000, 30_000)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    return make_shards(tmp_path_factory.mktemp("shards"), sizes=SIZES)


@pytest.fixture(scope="module")
def under_torchrun(on_disk, tmp_path_factory):
    """The results of two processes that are started as torchrun does."""
    out = tmp_path_factory.mktemp("torchrun") / "run"
    codes, output = wait_for(start_ranks(2, on_disk, out))
    assert codes == [0, 0], output
    return out


def check_equal_results(out, expected):
    check_equal_files(out / "labels", expected / "labels")
    name = "state.safetensors"
    assert (out / name).read_bytes() == (expected / name).read_bytes()
    assert (out / "run.json").exists()


def test_a_solve_gives_the_bytes_of_torchrun(on_disk, under_torchrun, cluster, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "infoshot", "solve-shards", "--support", on_disk.support,
         "--queries", on_disk.queries, "--out", "run", "--engine", "ray", "--workers", "2",
         "--address", cluster.address],
        capture_output=True, text=True, timeout=90, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert "130,001 rows of 5 shards labelled after 150 iterations" in done.stdout
    assert "solving" in done.stderr
    check_equal_results(tmp_path / "run", under_torchrun)


def test_a_whitened_solve_gives_the_bytes_of_torchrun(engine, tmp_path):
    on_disk = make_shards(tmp_path)
    add_base(on_disk, base_statistics())
    out, expected = tmp_path / "ray", tmp_path / "torchrun"
    codes, output = wait_for(start_ranks(2, on_disk, expected, "--method", "tim-auto"))
    assert codes == [0, 0], output
    solve_shards(on_disk.support, on_disk.queries, out, method="tim-auto", engine=engine)
    check_equal_results(out, expected)


@pytest.mark.parametrize("number", [0, 1])
def test_a_solve_survives_a_killed_process(on_disk, under_torchrun, engine, tmp_path, number):
    out, seen = tmp_path / "run", []
    job = Later(
        lambda: solve_shards(
            on_disk.support, on_disk.queries, out, engine=engine,
            progress=lambda *event: seen.append(event),
        )
    )  # fmt: skip
    wait_until((out / "state.safetensors").exists)
    end_process(processes_of("_Rank.run")[number])
    assert not (out / "run.json").exists()
    job.wait()
    check_equal_results(out, under_torchrun)
    first, second = (total for phase, done, total in seen if (phase, done) == ("solving", 0))
    assert 0 < second < first  # it resumed


def test_a_solve_that_loses_every_start_ends_with_a_sentence(
    on_disk, engine, tmp_path, monkeypatch
):
    monkeypatch.setattr("infoshot.distributed.ray_ranks._MOST_STARTS", 1)
    out = tmp_path / "run"
    job = Later(lambda: solve_shards(on_disk.support, on_disk.queries, out, engine=engine))
    wait_until((out / "state.safetensors").exists)
    end_process(processes_of("_Rank.run")[0])
    with pytest.raises(LostProcessError, match=r"^a process on the Ray cluster has ended \("):
        job.wait()


def test_errors_and_warnings_of_a_solve_arrive_here(engine, tmp_path):
    on_disk = make_shards(tmp_path, shares=[8, 1, 1, 1, 1, 1, 1])
    with pytest.raises(DataError, match="there is no such folder of shards"):
        solve_shards(on_disk.support, tmp_path / "none", tmp_path / "run", engine=engine)
    with pytest.warns(ImbalanceWarning, match="TIM-ADM assumes equally frequent classes"):
        solve_shards(
            on_disk.support, on_disk.queries, tmp_path / "run", engine=engine,
            settings={"n_steps": 2},
        )  # fmt: skip
    half = RayEngine(address=engine.address, gpus_per_worker=0.5)
    with pytest.raises(InvalidArgumentError, match="gpus_per_worker must be 0 or 1, since the pro"):
        solve_shards(on_disk.support, on_disk.queries, tmp_path / "other", engine=half)
