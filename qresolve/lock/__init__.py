"""The lock: what it holds, and PEP 751 files of it."""
