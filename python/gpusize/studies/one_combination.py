"""One combination of a study, in a folder of its own, for somebody else: ``python -m gpusize.studies.one_combination``.

On its standard input comes, after 8 bytes of length, a `Task`; then lines: ``stop`` is Ctrl-C, ``bye`` lets it take
its folder away and end. When the input ends it stops in order, with the teardown. On its standard output is one line, a
JSON object: ``entry`` as in ``study.json``, ``notes``, ``study`` (its folder here), and ``archive``, a tar of that with
its ``size``.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import sys
import tarfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from gpusize.base.errors import GpusizeError
from gpusize.engine.hosts.scratch import scratch
from gpusize.studies.conduct import Interrupts, run_study
from gpusize.studies.state import state_file
from gpusize.studies.task import Task, unpack

__all__ = ["main", "measured"]

END: Final = "!Q"


def main() -> None:
    """Do one task, as a process that is nobody's child."""
    if os.fork():
        os._exit(0)
    os.setsid()
    # Processes of Ray's have SIGINT blocked, and so has what they start.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    said, words = _own_streams()
    task = _task(words)
    over = threading.Event()
    # To the end: what is left to do then is to hand it over, and who has gone is noticed without a signal.
    with Interrupts() as interrupts, scratch() as folder:
        threading.Thread(target=_listen, args=(words, over), daemon=True).start()
        found = measured(task, folder / "study", interrupts)
        archive = folder / "kept.tar"
        with tarfile.open(archive, "w") as tar:
            for each in sorted((folder / "study").glob("*")):
                if each != state_file(folder / "study"):
                    tar.add(each, each.name)
        found |= {"archive": str(archive), "size": archive.stat().st_size}
        said.write(json.dumps(found).encode() + b"\n")
        said.flush()
        over.wait()


def _own_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Our output and input; what commands and libraries print goes where errors do."""
    said, words = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return said, words


def _task(words: IO[bytes]) -> Task:
    (length,) = struct.unpack(END, _exactly(words, struct.calcsize(END)))
    found: Task = pickle.loads(_exactly(words, length))  # noqa: S301 -- from the program that has started us
    return found


def _exactly(words: IO[bytes], count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        got = words.read(count - len(found))
        if not got:
            sys.exit("gpusize.studies.one_combination: nobody said what is to be done")
        found += got
    return bytes(found)


def _listen(words: IO[bytes], over: threading.Event) -> None:
    while not over.is_set():
        word = words.readline().strip()
        if word == b"stop":
            os.kill(os.getpid(), signal.SIGINT)
            continue
        over.set()
        if word != b"bye":
            os.kill(os.getpid(), signal.SIGTERM)


def measured(task: Task, out: Path, interrupts: Interrupts) -> dict[str, Any]:
    """Do a task in a folder of its own, and say what came of it: ``entry``, ``notes`` and ``study``, the folder."""
    (combination,) = task.study.combinations
    notes: list[str] = []
    out.mkdir()
    try:
        os.chdir(task.place)
        sys.path.insert(0, task.place)
        if task.begun:
            unpack(task.begun, out)
        study, resume = replace(task.study, out=out), bool(task.begun)
        result = run_study(study, resume=resume, command=task.command, say=notes.append, interrupts=interrupts)
        entry = dict(result.entries[combination.name])
    except OSError as error:
        what = f"{task.place}, where the study was started, is not on this node: {error.strerror or error}"
        entry = {"state": "failed", "error": what}
    except GpusizeError as error:
        entry = {"state": "failed", "error": str(error)}
    return {"entry": entry, "notes": notes, "study": str(out)}


if __name__ == "__main__":
    main()
