"""Tables of a cluster test's folder."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusize.base.errors import StoreError
from gpusize.base.files import lock_folder
from gpusize.cluster.folder import append_rows, scan_table
from gpusize.cluster.watch.watching import Watching

WRITERS, PARTS = 4, 20


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("impatient")
def test_what_several_write_at_once_is_all_there(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        for number in range(PARTS):
            append_rows(tmp_path, "stamps", [{"workload": f"{writer}-{number}"}])

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = scan_table(tmp_path, "stamps").collect()["workload"].to_list()
    assert sorted(found) == sorted(f"{writer}-{number}" for writer in range(WRITERS) for number in range(PARTS))


def test_one_sampling_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    place = tmp_path / "stamps"
    place.mkdir()
    held = lock_folder(place)
    # It is refused before it asks the server anything.
    listing = Watching(None, tmp_path, (), None, namespace="a", canary=False)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="another process"):
        asyncio.run(listing.list_once())
    os.close(held)
    os.close(lock_folder(place))
