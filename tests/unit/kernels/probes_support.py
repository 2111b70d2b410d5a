"""The probes as a package: they lie in kernels/ and are imported from there."""

from __future__ import annotations

import sys
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[3] / "kernels"
HARNESS = KERNELS / "harness.py"

if str(KERNELS) not in sys.path:
    sys.path.append(str(KERNELS))
