"""``python -m qresolve``, and what the console script calls."""

from __future__ import annotations

from qresolve.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
