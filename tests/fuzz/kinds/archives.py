"""Tar archives of class folders: an accepted archive has all images of the intact one."""

import io
import tarfile
from collections import Counter
from pathlib import Path

from infoshot import inspect_dataset
from infoshot.images import open_dataset
from tests.fuzz.containers import edit_tar_header, tar_with_odd_members
from tests.fuzz.kinds.made import make_image, write
from tests.fuzz.mutations import BYTES
from tests.fuzz.runner import Case, Kind, run_command

_LONG = "a long name of an image " * 6
# Damage that may leave a valid archive of other members: whole members are moved or repeated.
_MAY_MOVE_MEMBERS = ("delete a range", "repeat a range", "swap two ranges", "splice", "append")


class Tar(Kind):
    """Archives in three formats; names that are too long for a header are in one of them."""

    name, fast = "tar", True

    def prepare(self, intact: Path) -> None:
        names = [f"{'abc'[n % 3]}/{n}.png" for n in range(7)]
        long_names = [f"{'ab'[n % 2]}/{_LONG}{n}.png" for n in range(3)]
        members = {name: make_image(n) for n, name in enumerate(names)}
        more = {name: make_image(n) for n, name in enumerate(long_names)}
        write(intact / "ustar.tar", _archive(members, tarfile.USTAR_FORMAT))
        write(intact / "gnu.tar", _archive(members, tarfile.GNU_FORMAT))
        write(intact / "long-gnu.tar", _archive({**members, **more}, tarfile.GNU_FORMAT))
        write(intact / "long-pax.tar", _archive({**members, **more}, tarfile.PAX_FORMAT))

    def check(self, case: Case) -> None:
        for path in case.intact.glob("*.tar"):
            write(case.work / path.stem / path.name, path.read_bytes())
            assert sum(_members(case.work / path.stem).values()) == (
                10 if "long" in path.name else 7
            )

    def attempt(self, case: Case) -> None:
        random = case.random
        source = random.choice(sorted(case.intact.glob("*.tar")))
        content, done, comparable = _damage(case, source.read_bytes())
        write(case.work / "root" / "shard.tar", content)
        case.note(f"{source.name}: {done}")
        if random.random() < 0.1:
            run_command(
                "data", "inspect", "--dataset", "folder", "--root", "root", "--json", "all.json"
            )
        elif random.random() < 0.2:
            inspect_dataset("folder", case.work / "root", progress=False)
        found = _members(case.work / "root")
        write(case.work / "whole" / "shard.tar", source.read_bytes())
        expected = _members(case.work / "whole")
        if not comparable:
            return
        if "long" in source.name:  # long names are in blocks that have no checksum
            assert sum(found.values()) >= sum(expected.values()), "images are lost"
        elif comparable == "same":
            assert found == expected, f"{sum((expected - found).values())} images are lost"


def _damage(case: Case, content: bytes) -> tuple[bytes, str, str]:
    """Damage an archive; also return how it must compare with the intact one if it is accepted."""
    random, how = case.random, case.random.random()
    if how < 0.15:
        return *edit_tar_header(random, content), ""
    if how < 0.25:
        return (
            tar_with_odd_members(random, {f"a/{n}.png": make_image(n) for n in range(3)}),
            "odd member",
            "",
        )
    if how < 0.45:
        return _flip_in_header(case, content)
    change = random.choice(BYTES)
    done = change.__name__.strip("_").replace("_", " ")
    return change(random, content, content), done, "" if done in _MAY_MOVE_MEMBERS else "same"


def _flip_in_header(case: Case, content: bytes) -> tuple[bytes, str, str]:
    places = [i for i in range(0, len(content), 512) if content[i + 257 : i + 262] == b"ustar"]
    place = case.random.choice(places) + case.random.randrange(512)
    changed = bytearray(content)
    changed[place] ^= 1 << case.random.randrange(8)
    return bytes(changed), f"flip a bit of a header, at byte {place}", "same"


def _members(root: Path) -> Counter:
    """Count images by class, name and size, and the files that were reported as ignored."""
    found = open_dataset("folder", root).found
    images = Counter(
        (record.class_name, record.key, record.location.size) for record in found.records
    )
    return images + Counter(
        ("ignored", str(name).partition(".tar:")[2], 0) for name in found.ignored
    )


def _archive(members: dict[str, bytes], kind: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
        for folder in sorted({name.partition("/")[0] for name in members}):
            facts = tarfile.TarInfo(folder)
            facts.type = tarfile.DIRTYPE
            archive.addfile(facts)
        for name, content in members.items():
            facts = tarfile.TarInfo(name)
            facts.size = len(content)
            archive.addfile(facts, io.BytesIO(content))
    return stream.getvalue()


KINDS = (Tar(),)
