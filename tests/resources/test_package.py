from __future__ import annotations

import pytest

from gpusize import resources


def test_every_public_name_is_there():
    assert [name for name in resources.__all__ if getattr(resources, name, None) is None] == []
    assert set(resources.__all__) <= set(dir(resources))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = resources.nothing
