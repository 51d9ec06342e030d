"""HTTP answers cut anywhere, and watches that end in every way."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.cluster.access.api import connect
from gpusize.cluster.access.refused import KubeRefused
from gpusize.cluster.access.stream import BodyReader, Broken, open_lines
from tests.cluster.watch.pods import pod
from tests.cluster.watch.watch_double import WatchDouble

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
PODS = "/api/v1/namespaces/team/pods"


def chunked(parts: list[bytes]) -> bytes:
    return HEAD + b"".join(b"%x;note=1\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@given(st.data(), st.lists(st.binary(min_size=1, max_size=40), max_size=8))
def test_a_body_is_the_same_however_it_is_cut(data: st.DataObject, parts: list[bytes]) -> None:
    sent = chunked(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=12)) | {0, len(sent)})
    reader = BodyReader()
    read = b"".join(reader.feed(sent[begin:end]) for begin, end in pairwise(cuts))
    assert read == b"".join(parts)
    assert reader.ended
    assert reader.status == 200


@given(st.integers(0, 200))
def test_a_body_that_is_cut_short_has_not_ended(upto: int) -> None:
    sent = chunked([b"x" * 30, b"y" * 50])
    reader = BodyReader()
    reader.feed(sent[: min(upto, len(sent) - 5)])
    assert not reader.close()


def test_a_body_with_a_length_ends_there_and_one_without_at_the_end() -> None:
    reader = BodyReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1") == b"abc"
    assert reader.ended
    reader = BodyReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nab") == b"ab"
    assert not reader.ended
    assert reader.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 ok\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        HEAD + b"zz\r\n",
        HEAD + b"1" * 2000,
        b"x" * 70_000,
    ],
)
def test_what_is_no_http_is_said_to_be_none(sent: bytes) -> None:
    with pytest.raises(Broken):
        BodyReader().feed(sent)


def watch(double: WatchDouble, folder: Path, act: str | None, **params: str) -> list[str]:
    """The types of the lines of one watch, until it ends."""
    seen: list[str] = []

    async def work() -> None:
        async with connect(double.kubeconfig(folder)) as api:
            asked = {"watch": "true", "resourceVersion": "0", **params}
            async with open_lines(api.access, PODS, asked, silent_s=5.0) as lines:
                async for _, several in lines:
                    seen.extend(
                        json.loads(line)["type"] for line in several.splitlines() if line and line != b"no object"
                    )
                    if act is not None and len(seen) == 1:
                        await asyncio.to_thread(double.cut, "pods", act)

    try:
        asyncio.run(work())
    finally:
        watched = next(each for each in double.asked if "watch" in each)
        assert watched.startswith("GET /api/v1/namespaces/team/pods?watch=true")
    return seen


def test_a_watch_that_the_server_ends_is_over(tmp_path: Path) -> None:
    with WatchDouble() as double:
        double.put("pods", pod(1, "new"))
        assert watch(double, tmp_path, "end") == ["ADDED"]


@pytest.mark.parametrize("how", ["line", "drop"])
def test_a_watch_that_is_cut_is_broken(tmp_path: Path, how: str) -> None:
    with WatchDouble() as double:
        double.put("pods", pod(1, "new"))
        with pytest.raises(Broken, match="broke off"):
            watch(double, tmp_path, how)


def test_a_watch_that_is_refused_says_why(tmp_path: Path) -> None:
    with WatchDouble() as double:
        double.refused["/pods"] = 403
        with pytest.raises(KubeRefused, match="403 No: not here"):
            watch(double, tmp_path, None)


def test_a_forgotten_version_is_an_error_line(tmp_path: Path) -> None:
    with WatchDouble() as double:
        double.put("pods", pod(1, "new"))
        double.forget()
        assert watch(double, tmp_path, None) == ["ERROR"]


def test_a_server_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    with WatchDouble() as double:
        double.asked.append("GET /api/v1/namespaces/team/pods?watch=true")
        double.stop()
        with pytest.raises(Broken, match="no answer from the API server"):
            watch(double, tmp_path, None)
