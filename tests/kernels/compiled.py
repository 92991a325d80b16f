"""What the tests of compiled kernels share."""

from __future__ import annotations

import pytest

from xfed.kernels.library import identity

needs_compiler = pytest.mark.skipif(identity() is None, reason="no C++ compiler here")
