"""Pictures that cannot be drawn are left out: nothing measured is given up for one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from gpusize.base.errors import GpusizeError
from gpusize.base.text import shown

__all__ = ["PlotsLeftOut", "drawing"]


class PlotsLeftOut(UserWarning):
    """Pictures are missing, as matplotlib failed; the text says why. Everything else was written."""


@contextmanager
def drawing() -> Iterator[None]:
    """Leave out what is drawn inside if matplotlib fails at it, with a warning (`PlotsLeftOut`).

    matplotlib has no class of errors of its own: a broken installation, a font cache that cannot be read and a folder
    that cannot be written to end in all sorts. So all are taken for one of its, but those that gpusize raises on
    purpose, such as of a disk that is full.
    """
    try:
        yield
    except GpusizeError:
        raise
    except Exception as problem:  # noqa: BLE001 -- matplotlib raises any
        said = shown(str(problem).partition("\n")[0], 200)
        why = f"{type(problem).__name__}: {said}" if said else type(problem).__name__
        text = f"pictures are left out, as matplotlib failed ({why}); all else is written. See if it can be imported"
        # The same for each picture, so that it is shown once.
        warnings.warn(PlotsLeftOut(f"{text}, and where MPLCONFIGDIR points"), stacklevel=1)
