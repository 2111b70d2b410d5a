"""Asking what only another interpreter can tell: scripts in throwaway processes, and a stub driver for them."""
