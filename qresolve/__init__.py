"""Locks, installs and proves environments in which quantized formats run on their native kernels."""

__version__ = "0.1.0"
