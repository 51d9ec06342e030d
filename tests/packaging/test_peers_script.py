"""scripts/peers.py builds what is missing, once, and says what cannot be had."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import peers
from scripts.peers import DONE, Missing, Place, build, peer_folder, peer_pieces

LOCK_LINE = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; .+)?")

Pieces = dict[str, Callable[[Place], None]]


def make_folder(place: Place) -> None:
    place.folder.mkdir()


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pieces], list[str]]:
    """Replaces the pieces of the peer ``clients``; the list says which were made, in order."""

    def use(pieces: Pieces) -> list[str]:
        made: list[str] = []

        def noted(name: str, step: Callable[[Place], None]) -> Callable[[Place], None]:
            def make(place: Place) -> None:
                made.append(name)
                step(place)

            return make

        monkeypatch.setitem(peers.PEERS, "clients", {name: noted(name, step) for name, step in pieces.items()})
        return made

    return use


@pytest.mark.parametrize("name", peers.PEERS)
def test_versions_are_exact(name: str) -> None:
    lines = (peers.REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#") and not LOCK_LINE.fullmatch(line)] == []


def test_the_folder_is_named_by_the_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "REQUIREMENTS", tmp_path)
    (tmp_path / "triton.txt").write_text("a==1\n")
    first = peer_folder("triton", tmp_path)
    assert first == peer_folder("triton", tmp_path)
    (tmp_path / "triton.txt").write_text("a==2\n")
    assert peer_folder("triton", tmp_path) != first
    assert peer_folder("triton", tmp_path).parent == tmp_path


def test_the_cache_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert peer_folder("llama").parent == tmp_path / "gpusize-peers"


def test_a_second_build_makes_nothing(tmp_path: Path, recipe: Callable[[Pieces], list[str]]) -> None:
    made = recipe({"packages": make_folder, "tool": lambda _: None})
    assert build("clients", tmp_path)
    assert build("clients", tmp_path)
    assert made == ["packages", "tool"]
    assert peer_pieces(peer_folder("clients", tmp_path)) == {"packages", "tool"}


def test_what_cannot_be_had_is_said_and_tried_again(
    tmp_path: Path, recipe: Callable[[Pieces], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Place) -> None:
        raise Missing("no such library here")

    made = recipe({"packages": make_folder, "tool": fail})
    assert not build("clients", tmp_path)
    assert "no tool: no such library here" in capsys.readouterr().err
    assert peer_pieces(peer_folder("clients", tmp_path)) == {"packages"}
    assert not build("clients", tmp_path)
    assert made == ["packages", "tool", "tool"]


def test_two_builds_at_once_make_it_once(tmp_path: Path, recipe: Callable[[Pieces], list[str]]) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(place: Place) -> None:
        place.folder.mkdir()
        begun.set()
        go_on.wait(30)

    made = recipe({"packages": slow})
    whole: list[bool] = []
    threads = [threading.Thread(target=lambda: whole.append(build("clients", tmp_path))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert (made, whole) == (["packages"], [True, True])


def test_environments_that_nobody_asks_for_are_removed(tmp_path: Path, recipe: Callable[[Pieces], list[str]]) -> None:
    recipe({"packages": make_folder})
    for name, days in (("old", 31), ("recent", 29)):
        marker = tmp_path / f"clients-{name}" / DONE
        marker.parent.mkdir()
        marker.write_text("[]")
        then = time.time() - days * 86_400
        os.utime(marker, (then, then))
    assert build("clients", tmp_path)
    assert not (tmp_path / "clients-old").exists()
    assert (tmp_path / "clients-recent").exists()


def test_a_torn_note_counts_as_nothing(tmp_path: Path) -> None:
    (tmp_path / DONE).write_text('["packa')
    assert peer_pieces(tmp_path) == set()
