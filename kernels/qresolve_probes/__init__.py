"""Compact kernels that prove a format's native instruction; they import nothing of qresolve. See ``probe.py``."""
