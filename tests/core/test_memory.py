import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from infoshot.core.memory import keep_freed_memory

if {keep}:
    keep_freed_memory()
for _ in range(20):
    torch.ones(16_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of GNU's C library")
def test_kept_memory_is_not_requested_again():
    faults = [
        int(subprocess.check_output([sys.executable, "-c", SCRIPT.format(keep=keep)]))
        for keep in (False, True)
    ]
    assert faults[1] < faults[0] - 100_000  # 19 times 64 MB in pages of 4 kB are 297,000


@pytest.mark.parametrize(
    ("given", "used"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")]
)
def test_arrow_shares_it_unless_the_environment_says_otherwise(given, used):
    script = (
        "from infoshot.core.memory import keep_freed_memory; keep_freed_memory(); "
        "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    )
    environment = {**os.environ, **given}
    if not given:
        environment.pop("ARROW_DEFAULT_MEMORY_POOL", None)
    found = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert found.strip() == used
