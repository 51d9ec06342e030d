"""What a node of a Ray cluster says of itself, and whether it is one of ours.

Ray carries `about` whole, not by its name: it has to say clearly that gpusize is missing where it is missing. So
nothing of ours is imported at the top.
"""

from __future__ import annotations

import importlib
import os
import platform
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["about", "refuse_others"]


def about(needs: str) -> dict[str, Any]:
    """``hostname``, ``pid``, and the versions of ``python`` and ``gpusize``, or the ``problem`` with that.

    Args:
        needs: the module that is to run there.
    """
    found = {"hostname": socket.gethostname(), "pid": os.getpid(), "python": platform.python_version()}
    try:
        from gpusize import __version__

        importlib.import_module(needs)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is told where somebody reads it
        return {**found, "problem": f"{type(error).__name__}: {error}", "path": sys.executable}
    return {**found, "gpusize": __version__}


def refuse_others(told: Iterable[Mapping[str, Any]]) -> None:
    """See that all nodes have our versions.

    Raises:
        EnvironmentLacks: one has not.
    """
    from gpusize import __version__
    from gpusize.base.errors import EnvironmentLacks
    from gpusize.base.text import shown

    for each in told:
        name, problem, version = str(each["hostname"]), each.get("problem"), each.get("gpusize")
        if problem is not None:
            todo = "on each node: pip install gpusize, or hand it over in a runtime_env of the job"
            raise EnvironmentLacks(f"gpusize cannot be imported there: {shown(problem, 200)}", name, todo)
        if version != __version__:
            what = f"gpusize is {shown(str(version), 40)} there and {__version__} here: their draws may differ"
            raise EnvironmentLacks(what, name, "install the same version on all nodes")
        if each["python"].split(".")[:2] != platform.python_version().split(".")[:2]:
            what = f"Python is {each['python']} there and {platform.python_version()} here"
            raise EnvironmentLacks(what, name, "run the same Python on all nodes")
