from __future__ import annotations

import pytest

from gpusize import containers


def test_every_public_name_is_there():
    assert [name for name in containers.__all__ if getattr(containers, name, None) is None] == []
    assert set(containers.__all__) <= set(dir(containers))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = containers.nothing
